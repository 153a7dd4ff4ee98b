"""`make proof-alarms`: what symptoms say of healthy runs and of faults, by this code and by an older revision.

Argument: the older revision, by default the one before symptoms knew success. Writes docs/proofs/alarms.md; exits with
1 if more than 2 % of the healthy runs raise an alarm, or fewer than 90 % of the faults are named.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.proofs.alarms.corpus import RecordedRun, recorded
from tests.proofs.alarms.logs import TRAINERS, WORKS, HealthyLog, healthy_logs
from tests.proofs.alarms.planted import FAULTS, planted
from tests.proofs.alarms.varied import VARIANTS, varied
from tests.ray_head import HOUSE
from tests.revision import write_revision

OLD = "b3ae61d5"
SEED, PER_FAULT = 21, 12
MOST_FALSE, LEAST_NAMED = 0.02, 0.9
REPORT = HOUSE / "docs" / "proofs" / "alarms.md"
JUDGE = Path(__file__).with_name("judge.py")

Answers = Mapping[str, Mapping[str, Any]]


def main(arguments: Sequence[str]) -> int:
    """Judge all runs by both, print the report and keep it."""
    revision = arguments[0] if arguments else OLD
    runs = [*recorded(), *planted(recorded(), seed=SEED, per_fault=PER_FAULT)]
    variants = varied(recorded(), seed=SEED)
    logs = healthy_logs()
    new = answers([*runs, *variants, *logs], HOUSE)
    with tempfile.TemporaryDirectory(prefix="pw-old-") as folder:
        old = answers([*runs, *variants, *logs], write_revision(revision, Path(folder), "jobs", "profiling"))
    text = report(runs, variants, logs, old=old, new=new, revision=revision)
    print(text)
    REPORT.write_text(text)
    wrong = max(false_alarms(runs, new), live_alarms(runs, new), false_alarms(variants, new), false_alarms(logs, new))
    return 0 if wrong <= MOST_FALSE and share_named(runs, new) >= LEAST_NAMED else 1


def answers(runs: Sequence[RecordedRun | HealthyLog], tree: Path) -> Answers:
    """Return what the code in a tree says of every run."""
    asked = json.dumps([run.as_question() for run in runs])
    said = subprocess.run([sys.executable, JUDGE], cwd=tree, input=asked, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(said.stdout)
    return found


def alarms(run: RecordedRun | HealthyLog, said: Answers) -> list[str]:
    """Return the alarms at the end of a run; what only says where time goes is none."""
    return [name for name, tone in said[run.name]["end"].items() if tone == "alarm"]


def is_named(run: RecordedRun, said: Answers) -> bool:
    """Return True if one of the symptoms that name its fault is among those at its end.

    All of these are alarms but two notices, *the loss does not fall* and *cut responses hold the reward back*: of
    numbers alone these may be no faults.
    """
    return not set(run.expected).isdisjoint(said[run.name]["end"])


def false_alarms(runs: Sequence[RecordedRun] | Sequence[HealthyLog], said: Answers) -> float:
    """Return the share of healthy runs, or logs, with an alarm at the end."""
    healthy = [run for run in runs if run.is_healthy]
    return sum(bool(alarms(run, said)) for run in healthy) / len(healthy)


def live_alarms(runs: Sequence[RecordedRun], said: Answers) -> float:
    """Return the share of healthy runs with an alarm at any step."""
    healthy = [run for run in runs if run.is_healthy]
    return sum(bool(said[run.name]["first"]) for run in healthy) / len(healthy)


def share_named(runs: Sequence[RecordedRun], said: Answers) -> float:
    """Return the share of faults that are named."""
    faults = [run for run in runs if not run.is_healthy]
    return sum(is_named(run, said) for run in faults) / len(faults)


def report(
    runs: Sequence[RecordedRun],
    variants: Sequence[RecordedRun],
    logs: Sequence[HealthyLog],
    *,
    old: Answers,
    new: Answers,
    revision: str,
) -> str:
    """Return the page."""
    healthy = [run for run in runs if run.is_healthy]
    real = [run for run in runs if not run.is_healthy and not run.planted]
    made = [run for run in runs if run.planted]
    both = (old, new)
    live = [sum(bool(said[run.name]["first"]) for run in healthy) for said in both]
    ends = [sum(bool(alarms(run, said)) for run in healthy) for said in both]
    on_the_way = [sum(bool(said[run.name]["first"]) for run in variants) for said in both]
    of_logs = [sum(bool(alarms(log, said)) for log in logs) for said in both]
    others = [sum(bool(alarms(run, said)) for run in variants) for said in both]
    reals = [sum(is_named(run, said) for run in real) for said in both]
    mades = [sum(is_named(run, said) for run in made) for said in both]
    lines = [
        "# Alarms: false ones, and faults that are named",
        "",
        f"Written by `make proof-alarms`: what the symptoms of metrics say of {len(healthy)} healthy runs, of "
        f"{len(real)} runs that went wrong, and of {len(made)} faults planted into the numbers of healthy ones, "
        f"{PER_FAULT} of each of {len(FAULTS)} kinds (`tests/proofs/alarms/planted.py`), by revision {revision} (old) "
        "and by this code (new), on the same series (`tests/data/health`).",
        "",
        "| | runs | old | new | asked |",
        "|---|---|---|---|---|",
        f"| healthy, with an alarm at the end | {len(healthy)} | {_of(ends[0], healthy)} | {_of(ends[1], healthy)} "
        f"| ≤ {MOST_FALSE:.0%} |",
        f"| healthy, with an alarm at any step | {len(healthy)} | {_of(live[0], healthy)} | {_of(live[1], healthy)} "
        f"| ≤ {MOST_FALSE:.0%} |",
        f"| healthy, changed in what says nothing of health | {len(variants)} | {_of(others[0], variants)} "
        f"| {_of(others[1], variants)} | ≤ {MOST_FALSE:.0%} |",
        f"| the same, with an alarm at any step | {len(variants)} | {_of(on_the_way[0], variants)} "
        f"| {_of(on_the_way[1], variants)} | |",
        f"| logs of what works, read as those of {len(TRAINERS)} trainers | {len(logs)} | {_of(of_logs[0], logs)} "
        f"| {_of(of_logs[1], logs)} | ≤ {MOST_FALSE:.0%} |",
        f"| went wrong by themselves, named | {len(real)} | {_of(reals[0], real)} | {_of(reals[1], real)} "
        f"| ≥ {LEAST_NAMED:.0%} |",
        f"| planted, named | {len(made)} | {_of(mades[0], made)} | {_of(mades[1], made)} | ≥ {LEAST_NAMED:.0%} |",
        "",
        "A fault counts as named where one of the symptoms that describe it is said at the end of the run: all are "
        "alarms but two notices: *the loss does not fall*, as a model that was tuned on such answers before looks "
        "alike, and *cut responses hold the reward back*, where fewer than a quarter are cut and the reward has risen. "
        "What says where time goes (speed) counts in neither: it is a hint, and no alarm.",
        "",
        f"Changed: {'; '.join(VARIANTS)} (`tests/proofs/alarms/varied.py`). With an alarm by this code: "
        f"{_list(run.name for run in variants if alarms(run, new))}.",
        "",
        "## Healthy runs",
        "",
        "| run | origin | old | new | new, on the way |",
        "|---|---|---|---|---|",
        *(
            f"| {run.name} | {run.origin} | {_list(alarms(run, old))} | {_good(run, new)} "
            f"| {_list(f'{name} at {step}' for name, step in new[run.name]['first'].items())} |"
            for run in healthy
        ),
        "",
        "## Logs of what works",
        "",
        "| log | lines | why it counts as one that works | old | new |",
        "|---|---|---|---|---|",
        *(_of_log(file, logs, old, new) for file in WORKS),
        "",
        "## Runs that went wrong",
        "",
        "| run | origin | any of | old | new |",
        "|---|---|---|---|---|",
        *(
            f"| {run.name} | {run.origin} | {_list(run.expected)} | {_list(alarms(run, old))} "
            f"| {_list(alarms(run, new))} {'' if is_named(run, new) else '**missed** '}|"
            for run in real
        ),
        "",
        "## Planted faults",
        "",
        "| fault | what is done | any of | old | new |",
        "|---|---|---|---|---|",
        *(_of_fault(name, made, old, new) for name in FAULTS),
        "",
    ]
    return "\n".join(lines)


def _of_fault(name: str, made: Sequence[RecordedRun], old: Answers, new: Answers) -> str:
    runs = [run for run in made if run.planted == name]
    counts = [sum(is_named(run, said) for run in runs) for said in (old, new)]
    expected = _list(runs[0].expected)
    return f"| {name} | {FAULTS[name].text} | {expected} | {counts[0]} of {len(runs)} | {counts[1]} of {len(runs)} |"


def _of_log(file: str, logs: Sequence[HealthyLog], old: Answers, new: Answers) -> str:
    of_file = [log for log in logs if log.file == file]
    said = [_list(sorted({name for log in of_file for name in alarms(log, of)})) for of in (old, new)]
    return f"| {file} | {len(of_file[0].lines):,} | {of_file[0].why} | {said[0]} | {said[1]} |"


def _of(count: int, runs: Sequence[RecordedRun] | Sequence[HealthyLog]) -> str:
    return f"{count} ({count / len(runs):.1%})"


def _good(run: RecordedRun, said: Answers) -> str:
    good = [f"*{name}*" for name, tone in said[run.name]["end"].items() if tone == "good"]
    return _list([*alarms(run, said), *good])


def _list(names: Any) -> str:
    return ", ".join(str(name).replace("learning.", "") for name in names) or "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
