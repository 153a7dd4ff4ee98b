"""A command of one's own: started as it is written, fetched from Git, read from three places; hostile texts refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import Launch, adapter
from jobs.adapters.own_command.patterns import read_patterns, values_in
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec

TRAINER = "own_command"


def spec_of(**knobs: Any) -> RunSpec:
    return parse_spec(
        {
            "algorithm": "sft",
            "trainer": {"name": TRAINER},
            "knobs": {name if "." in name else f"{TRAINER}.{name}": value for name, value in knobs.items()},
        }
    )


def launch_of(run_dir: Path, **knobs: Any) -> Launch:
    return adapter(TRAINER).command(spec=spec_of(**knobs), run_dir=run_dir, python=sys.executable, device="cpu")


def start(launch: Launch, run_dir: Path) -> subprocess.CompletedProcess[str]:
    for name, text in launch.files.items():
        path = run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run(
        launch.argv,
        check=False,
        cwd=launch.working_dir or run_dir,
        env={**os.environ, **launch.env},
        capture_output=True,
        text=True,
    )


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "a1"
    folder.mkdir()
    return folder


def metrics(spec: RunSpec, run_dir: Path) -> dict[int, dict[str, float]]:
    """Return step -> values that the reader tells, once everything is written."""
    reader = adapter(TRAINER).logs(spec=spec, run_dir=run_dir)
    assert reader is not None
    events: list[Any] = [*reader.poll(now_ns=1), *reader.poll(now_ns=2)]
    return {event["step"]: event["values"] for event in events if event["kind"] == "metric"}


def test_a_command_gets_its_words_its_folder_its_variables_and_the_client(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, pitwall\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['PITWALL_LEARNING_RATE'], os.environ['PITWALL_DATA'])\n"
        "for step in (1, 2):\n"
        "    pitwall.log({'reward/mean': 0.5}, step=step, loss=1 / step)\n"
        "pitwall.log(step=2, broken=float('nan'))\n"
    )
    knobs = {"argv": f"{sys.executable} train.py '$HOME; rm x'", "working_dir": str(tmp_path)}
    knobs |= {"optimizer.learning_rate": 0.01}

    done = start(launch_of(run_dir, **knobs), run_dir)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == f"['$HOME; rm x'] {tmp_path} 0.01 {run_dir}/inputs/train.jsonl"
    values = metrics(spec_of(**knobs), run_dir)
    assert values[1] == {"reward/mean": 0.5, "loss": 1.0}
    assert values[2]["loss"] == 0.5
    assert str(values[2]["broken"]) in ("nan", "NaN")


def test_the_exit_code_is_the_command_s_own_and_a_program_that_is_not_there_is_named(run_dir: Path) -> None:
    assert start(launch_of(run_dir, argv="bash -c 'exit 7'"), run_dir).returncode == 7
    missing = start(launch_of(run_dir, argv="no-such-program"), run_dir)

    assert missing.returncode == 2
    assert "no-such-program cannot be started in" in missing.stderr


def test_a_repository_is_cloned_at_its_commit_without_its_hooks_and_the_run_knows_it(
    run_dir: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    git(theirs, "init", "-q")
    (theirs / "train.sh").write_text("echo trained\n")
    git(theirs, "add", ".")
    git(theirs, "commit", "-qm", "first")
    commit = git(theirs, "rev-parse", "HEAD")
    git(theirs, "commit", "-qm", "second", "--allow-empty")
    knobs = {"argv": "sh train.sh", "git": str(theirs), "git_ref": commit}

    done = start(launch_of(run_dir, **knobs), run_dir)
    reader = adapter(TRAINER).logs(spec=spec_of(**knobs), run_dir=run_dir)
    assert reader is not None
    (note,) = [event for event in reader.poll(now_ns=1) if event["kind"] == "note"]

    assert done.stdout == f"{theirs} at {commit}\ntrained\n"
    assert note["meta"]["environment"]["sources"][0]["commit"] == commit
    assert [event for event in reader.poll(now_ns=2) if event["kind"] == "note"] == []


@pytest.mark.parametrize("ref", ["other/branch", "v1", "", "nowhere"])
def test_a_branch_beside_the_first_or_a_tag_is_checked_out(run_dir: Path, tmp_path: Path, ref: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    git(theirs, "init", "-q", "-b", "first")
    for branch in ("first", "other/branch"):
        git(theirs, "checkout", "-q", "-B", branch)
        (theirs / "train.sh").write_text(f"echo {branch}\n")
        git(theirs, "add", ".")
        git(theirs, "commit", "-qm", branch)
    git(theirs, "tag", "v1", "first")
    git(theirs, "checkout", "-q", "first")

    done = start(launch_of(run_dir, argv="sh train.sh", git=str(theirs), git_ref=ref), run_dir)

    said = {"other/branch": "other/branch", "nowhere": ""}.get(ref, "first")
    assert done.stdout.splitlines()[1:] == [said][: bool(said)]
    assert done.stderr == ("" if said else f"{theirs} has no branch, tag or commit nowhere.\n")


def test_colors_of_a_terminal_are_no_part_of_a_line() -> None:
    line = "\x1b[32mstep\x1b[0m 3 loss \x1b[1;31m0.5\x1b[0m"

    assert values_in(line, read_patterns(r"^step (?P<step>\d+) loss (?P<loss>\S+)$")) == (3, {"loss": 0.5})


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"working_dir": "here"}, "absolute path"),
        ({"git": "ext::sh -c touch% /tmp/x"}, "no address"),
        ({"git": "--upload-pack=touch x"}, "no address"),
        ({"git": "https://me:token@example.com/x"}, "no address"),
        ({"git": "file:///etc"}, "no address"),
        ({"git": "https://example.com/x", "git_ref": "--orphan"}, "no branch"),
        ({"git": "https://example.com/x", "working_dir": "/x"}, "not both"),
        ({"argv": "python 'train.py"}, "never closed"),
        ({"patterns": "loss (\\d+)"}, "names no step"),
        ({"patterns": "(?P<step>\\d+) (?P<loss>"}, "no regular expression"),
        ({"patterns": "(?P<step>(\\d+)+) (?P<loss>\\d+)"}, "takes far too long"),
        ({"patterns": "(?P<step>\\d) (?P<loss>((a|b)*c)*)"}, "takes far too long"),
    ],
)
def test_what_makes_no_sense_or_would_run_a_program_is_refused(run_dir: Path, knobs: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        launch_of(run_dir, **knobs)


def test_lines_are_read_by_the_first_pattern_that_fits(run_dir: Path) -> None:
    text = "step (?P<step>\\d+) loss (?P<loss>\\S+)\niter=(?P<step>[\\d,]+) r=(?P<reward__mean>\\S+)( kl=(?P<kl>\\S+))?"
    patterns = read_patterns(text)

    assert values_in("12:00 step 3 loss 0.5", patterns) == (3, {"loss": 0.5})
    assert values_in("iter=1,200 r=-1e-3", patterns) == (1200, {"reward/mean": -0.001})
    assert values_in("step 3 loss soon", patterns) is None
    assert values_in("nothing", patterns) is None
    (run_dir / "log").mkdir()
    (run_dir / "log" / "driver-0.stdout").write_text("step 1 loss 2\nstep 2 loss 1.5\n")
    assert metrics(spec_of(patterns=text), run_dir) == {1: {"loss": 2.0}, 2: {"loss": 1.5}}


def test_what_is_no_metric_in_the_file_is_passed_over(run_dir: Path) -> None:
    lines = ["garbage", '{"step": -1, "t": 1, "data": {"a": 1}}', '{"step": 1, "t": 1, "data": [1]}']
    (run_dir / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 4, "t": 5, "data": {"a": 1}}']) + "\n")

    assert metrics(spec_of(), run_dir) == {4: {"a": 1.0}}


def test_the_client_refuses_what_is_no_number_and_does_nothing_outside_of_a_run(run_dir: Path) -> None:
    code = (
        "import pitwall\n"
        "for arguments in ({'step': 1.5}, {'step': -1}, {'step': 1, 'loss': 'low'}):\n"
        "    try:\n        pitwall.log(**arguments)\n"
        "    except TypeError as error:\n        print(error)\n"
        "pitwall.log(step=1, loss=1)\nprint(pitwall.is_run())\n"
    )
    launch = launch_of(run_dir, argv="true")
    start(launch, run_dir)
    environ = {**os.environ, "PYTHONPATH": launch.env["PYTHONPATH"]}
    environ.pop("PITWALL_RUN_DIR", None)

    done = subprocess.run([sys.executable, "-c", code], check=True, env=environ, capture_output=True, text=True)

    assert done.stdout.splitlines() == [
        "step is 1.5; give a whole number from 0.",
        "step is -1; give a whole number from 0.",
        "loss is 'low'; give a number.",
        "False",
    ]
    assert json.loads((run_dir / "inputs" / "command.json").read_text())["argv"] == ["true"]
