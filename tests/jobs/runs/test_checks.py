"""What is checked before a run is queued, on real files; where the process of its own is the point, with that."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache

from jobs.catalog.rules.rule import changed
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.cluster.ray_api import ClusterState, Node
from jobs.engine.bundled import word_problems
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.preflight import inspection
from jobs.models import Project
from jobs.preflight import preview as previews
from jobs.preflight.client import TrialFailed, TrialUnavailable
from jobs.preflight.data_files import store_upload
from jobs.preflight.inputs import uploads_dir
from jobs.preflight.preview import ModelFacts, preview_data, try_reward
from jobs.runs import checks as module
from jobs.runs.checks import (
    Check,
    check_algorithm,
    check_cluster,
    check_data,
    check_launchable,
    check_lengths,
    check_model,
    check_reward,
    check_trainer,
)
from tests.rows import NOW, make_project, make_run
from tests.trials import trials_here  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def project() -> Project:
    return make_project()


def custom(source: str, **more: Any) -> RunSpec:
    return parse_spec({"reward": {"kind": "custom", "source": source, "file_name": "mine.py"}, **more})


def cluster(*, cpus: float = 8, gpus: float = 0, is_reachable: bool = True) -> ClusterState:
    node = Node(id="n", address="", is_head=True, cpus=cpus, gpus=gpus, memory_bytes=1e9, accelerator="")
    return ClusterState(
        is_reachable=is_reachable, problem="", away_since=None, nodes=(node,), cpus_total=cpus, gpus_total=gpus
    )


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_bundled_demo_has_nothing_against_it(project: Project) -> None:
    assert check_launchable(parse_spec({}), project) == []


def test_the_preview_shows_what_is_trained_and_how_long_it_is(project: Project) -> None:
    found = preview_data(parse_spec({"algorithm": "sft"}), project=project)

    assert len(found.samples) == 5
    assert found.num_train + found.num_eval == found.num_rows
    assert len(found.edges) == len(found.counts) + 1
    assert sum(found.counts) == found.num_train
    trained = [s.text for s in found.samples[0].segments if s.is_trained]
    assert trained
    assert "####" in "".join(trained)


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ({"kind": "path", "id": "/nowhere/x.jsonl"}, "data.id", "There is no file '/nowhere/x.jsonl'"),
        ({"prompt_column": "question"}, "data.prompt_column", "The data has no column 'question'. It has: prompt"),
        ({"id": "gsm8k"}, "data.id", "There is no bundled data 'gsm8k'"),
    ],
)
@pytest.mark.usefixtures("trials_here")
def test_data_that_cannot_be_used_is_refused_beside_its_field(
    project: Project, data: dict[str, Any], field: str, words: str
) -> None:
    problems = check_launchable(parse_spec({"data": data}), project)

    assert [p.field for p in problems] == [field]
    assert words in problems[0].message


@pytest.mark.parametrize(
    ("text", "words"), [("", "has no rows"), ("not json\n", "Line 1 of"), ('{"prompt": 3, "answer": "x"}\n', "Row 1")]
)
@pytest.mark.usefixtures("trials_here")
def test_a_file_without_usable_rows_is_refused(project: Project, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(text)

    _, checks = check_data(parse_spec({"data": {"kind": "path", "id": str(file)}}), project=project)

    assert [c.state for c in checks] == ["failed"]
    assert words in checks[0].text


@pytest.mark.usefixtures("trials_here")
def test_an_edited_file_is_read_again(project: Project, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [{"prompt": "1+1", "answer": "2"}] * 4)
    spec = parse_spec({"data": {"kind": "path", "id": str(file)}})
    first = preview_data(spec, project=project)

    write(file, [{"prompt": "1+1", "answer": "2"}] * 6)

    assert (first.num_rows, preview_data(spec, project=project).num_rows) == (4, 6)


@pytest.mark.usefixtures("trials_here")
def test_prompts_that_are_all_too_long_leave_nothing_to_train_on(project: Project) -> None:
    problems = check_launchable(parse_spec({"knobs": {"rollout.max_prompt_tokens": 3}}), project)

    assert problems[0].field == "knobs.rollout.max_prompt_tokens"
    assert "none is left to train on" in problems[0].message


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"kind": "path", "id": "/nowhere"}, "There is no folder '/nowhere'"),
        ({"id": "llama"}, "There is no bundled model 'llama'"),
    ],
)
@pytest.mark.usefixtures("trials_here")
def test_a_model_that_cannot_be_loaded_is_refused(project: Project, model: dict[str, str], words: str) -> None:
    problems = check_launchable(parse_spec({"model": model}), project)

    assert {p.field for p in problems} == {"model.id"}
    assert words in problems[0].message


@pytest.mark.usefixtures("trials_here")
def test_a_model_that_is_not_there_is_told_once(project: Project) -> None:
    problems = check_launchable(parse_spec({"algorithm": "sft", "model": {"kind": "path", "id": "/nowhere"}}), project)

    assert [problem.field for problem in problems] == ["model.id"]


@pytest.mark.usefixtures("trials_here")
def test_a_broken_model_folder_is_refused(project: Project, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')

    _, checks = check_model(parse_spec({"model": {"kind": "path", "id": str(tmp_path)}}), project=project)

    assert "is not a causal language model" in checks[0].text


@pytest.mark.usefixtures("trials_here")
def test_a_reward_model_that_is_none_is_refused_and_another_one_is_looked_at_anew(
    project: Project, tmp_path: Path
) -> None:
    said = json.loads((BUNDLED / "tiny-word-problems" / "config.json").read_text())
    for name, changes in (("rm", {"architectures": ["Qwen2ForSequenceClassification"], "num_labels": 1}), ("lm", {})):
        shutil.copytree(BUNDLED / "tiny-word-problems", tmp_path / name)
        (tmp_path / name / "config.json").write_text(json.dumps(said | changes))

    def check_of(name: str) -> Check:
        spec = parse_spec({"reward": {"kind": "model", "location": str(tmp_path / name)}})
        (found,) = check_model(spec, project=project)[1]
        return found

    refused = check_of("lm")
    assert (refused.state, refused.field) == ("failed", "reward.location")
    assert "is no reward model" in refused.text
    assert check_of("rm").state == "passed"


@pytest.mark.usefixtures("trials_here")
def test_a_reward_model_of_a_cluster_elsewhere_is_not_judged_from_here(project: Project, settings: Any) -> None:
    settings.RAY_ADDRESS = "https://ray.example:8265"

    (found,) = check_model(parse_spec({"reward": {"kind": "model", "location": "/cluster/rm"}}), project=project)[1]

    assert (found.state, found.field) == ("unknown", "reward.location")


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    model = ModelFacts(architecture="X", num_parameters=1, context_tokens=100, dtype="float32")

    (failed,) = check_lengths(parse_spec({}), model)
    (passed,) = check_lengths(parse_spec({"knobs": {"rollout.max_prompt_tokens": 50}}), model)

    assert (failed.state, failed.field) == ("failed", "knobs.rollout.max_new_tokens")
    assert "128 tokens; the model's context holds 100" in failed.text
    assert passed.state == "passed"


SUPERVISED = [(name, a) for name, info in trainers().items() for a in info.algorithms if a in ("sft", "dpo", "rm")]


@pytest.mark.parametrize(("trainer", "algorithm"), SUPERVISED)
def test_samples_too_long_for_the_context_are_cut_to_it_by_one_click(trainer: str, algorithm: str) -> None:
    raw = {"trainer": {"name": trainer}, "algorithm": algorithm, "knobs": {"train.max_sequence_tokens": 2048}}
    model = ModelFacts(architecture="X", num_parameters=1, context_tokens=512, dtype="float32")

    (failed,) = check_lengths(parse_spec(raw), model)
    (mended,) = [check_lengths(changed(parse_spec(raw), fix), model)[0] for fix in failed.fixes]

    assert failed.state == "failed"
    assert failed.fixes == ({"train.max_sequence_tokens": 512},)
    assert mended.state == "passed"


@pytest.mark.parametrize(("prompt", "answer", "num_fixes"), [(400, 200, 2), (400, 600, 1), (600, 700, 1)])
@pytest.mark.parametrize("trainer", [name for name, info in trainers().items() if "grpo" in info.algorithms])
def test_answers_too_long_for_the_context_leave_room_for_the_prompt(
    trainer: str, prompt: int, answer: int, num_fixes: int
) -> None:
    knobs = {"rollout.max_prompt_tokens": prompt, "rollout.max_new_tokens": answer}
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": "grpo", "knobs": knobs})
    model = ModelFacts(architecture="X", num_parameters=1, context_tokens=512, dtype="float32")

    (failed,) = check_lengths(spec, model)

    assert len(failed.fixes) == num_fixes
    for fix in failed.fixes:
        mended = changed(spec, fix)
        assert check_lengths(mended, model)[0].state == "passed"
        assert mended.int_knob("rollout.max_prompt_tokens") + mended.int_knob("rollout.max_new_tokens") == 512


@pytest.mark.usefixtures("trials_here")
def test_a_good_reward_is_tried_and_told_apart_from_a_flat_one(project: Project) -> None:
    good = "def reward(prompt, completion, answer):\n    return float(answer in completion)"

    rewards = [r.reward for r in try_reward(custom(good), project=project)]

    assert set(rewards) == {0.0, 1.0}
    assert check_reward(custom(good), project=project)[0].state == "passed"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def reward(p, c, a):\n    return 1 / 0", ("mine.py line 2", "ZeroDivisionError")),
        ("def reward(p, c, a):\n    return 'good'", ("returned str",)),
        ("def score(p, c, a):\n    return 1.0", ("defines no function reward",)),
        ("def reward(p, c, a)\n    return 1.0", ("line 1", "SyntaxError")),
        ("import os\ndef reward(p, c, a):\n    os._exit(3)", ("ended its process",)),
    ],
)
@pytest.mark.usefixtures("trials_here")
def test_a_bad_reward_is_refused_with_its_own_sentence(project: Project, source: str, words: tuple[str, ...]) -> None:
    problems = check_launchable(custom(source), project)

    assert [p.field for p in problems] == ["reward.source"]
    for word in words:
        assert word in problems[0].message


@pytest.mark.usefixtures("trials_here")
def test_a_hanging_reward_is_refused_in_time_and_names_its_line(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "TRIAL_LIMITS", replace(inspection.TRIAL_LIMITS, timeout_seconds=1.0))
    source = "import time\ndef reward(p, c, a):\n    time.sleep(3600)\n    return 1.0"

    problems = check_launchable(custom(source), project)

    assert [p.field for p in problems] == ["reward.source"]
    assert "within 1 s" in problems[0].message
    assert "line 3" in problems[0].message


@pytest.mark.usefixtures("trials_here")
def test_an_algorithm_of_one_s_own_is_tried_before_launch(project: Project) -> None:
    good = "from jobs.engine.algorithms.grpo import PLUGIN\nBASE = 'grouped'"

    (passed,) = check_algorithm(parse_spec({"knobs": {"algorithm.source": good}}), project=project)
    (failed,) = check_algorithm(parse_spec({"knobs": {"algorithm.source": f"{good}\nPLUGIN = None"}}), project=project)

    assert (passed.state, "loss/policy" in passed.text) == ("passed", True)
    assert (failed.state, failed.field) == ("failed", "knobs.algorithm.source")
    assert "has no PLUGIN" in failed.text
    assert check_algorithm(parse_spec({}), project=project) == []


def test_what_was_just_previewed_is_not_read_again_at_launch(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec({})
    preview_data(spec, project=project)

    monkeypatch.setattr(previews, "run_trial", lambda *_, **__: pytest.fail("read twice"))

    preview_data(parse_spec({"name": "other", "knobs": {"optimizer.learning_rate": 1e-5}}), project=project)


@pytest.mark.usefixtures("trials_here")
def test_an_upload_of_another_project_cannot_be_used(project: Project) -> None:
    lines = b'{"prompt": "1+1", "answer": "2"}\n' * 3
    row = store_upload(project=make_project(), file_name="a.jsonl", chunks=[lines], user=None, now=NOW)
    spec = parse_spec({"data": {"kind": "upload", "id": f"upload:{row.sha256}"}})

    with pytest.raises(TrialFailed, match="was not uploaded to this project"):
        preview_data(spec, project=project)

    assert preview_data(spec, project=row.project).num_rows == 3
    (uploads_dir() / row.sha256).unlink()
    cache.clear()
    with pytest.raises(TrialFailed, match="no longer on the console's disk"):
        preview_data(spec, project=row.project)


@pytest.mark.usefixtures("trials_here")
def test_paths_of_a_cluster_elsewhere_are_not_judged_from_here(project: Project, settings: Any) -> None:
    settings.RAY_ADDRESS = "https://ray.example:8265"
    spec = parse_spec({"data": {"kind": "path", "id": "/cluster/x.jsonl"}, "model": {"kind": "path", "id": "/m"}})

    _, (data,) = check_data(spec, project=project)
    _, (model,) = check_model(spec, project=project)

    assert (data.state, model.state) == ("unknown", "unknown")
    assert data.text.startswith("Not checked here, the cluster is on other machines")


def test_a_console_without_the_engine_s_packages_says_that_it_cannot_look(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any, **__: Any) -> dict[str, Any]:
        raise TrialUnavailable("data.id", "Not checked here: …")

    monkeypatch.setattr(previews, "run_trial", unavailable)

    assert check_data(parse_spec({}), project=project)[1][0].state == "unknown"


def test_a_run_that_the_cluster_can_never_hold_is_refused() -> None:
    (too_big,) = check_cluster(parse_spec({"hardware": {"cpus_per_worker": 9, "policy_ranks": 2}}), cluster(cpus=8))
    (no_gpu,) = check_cluster(parse_spec({"hardware": {"device": "cuda"}}), cluster())

    assert (too_big.state, too_big.field) == ("failed", "hardware.policy_ranks")
    assert "Needs 18 CPUs, the cluster has 8" in too_big.text
    assert (no_gpu.state, no_gpu.field) == ("failed", "hardware.device")


@pytest.mark.parametrize(
    ("gpus", "hardware", "says", "changes"),
    [
        (3, {"policy_ranks": 2}, "The layout shared with policy ranks 2 needs 3.", {"hardware.layout": "shared"}),
        (2, {"policy_ranks": 2}, "The layout colocated with policy ranks 2 needs 2.", {"hardware.layout": "colocated"}),
        (
            1,
            {"policy_ranks": 2},
            "The layout colocated with policy ranks 1 needs 1.",
            {"hardware.policy_ranks": 1, "hardware.layout": "colocated"},
        ),
        (
            4,
            {"policy_ranks": 8, "layout": "colocated"},
            "With policy ranks 4 it needs 4.",
            {"hardware.policy_ranks": 4},
        ),
    ],
)
def test_a_layout_that_the_cluster_cannot_hold_is_refused_with_the_one_that_it_can(
    gpus: int, hardware: dict[str, Any], says: str, changes: dict[str, Any]
) -> None:
    asked = {"device": "cuda", "layout": "split", **hardware}

    (check,) = check_cluster(parse_spec({"hardware": asked}), cluster(cpus=64, gpus=gpus))

    assert (check.state, check.fixes) == ("failed", (changes,))
    assert f"the cluster has {gpus}" in check.text
    assert says in check.text


@pytest.mark.usefixtures("trials_here")
def test_rules_go_by_the_device_that_the_run_would_get(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = {"train.max_sequence_tokens": 256}
    spec = parse_spec({"trainer": {"name": "openrlhf"}, "algorithm": "sft", "knobs": knobs})

    def refusals(state: ClusterState) -> list[str]:
        monkeypatch.setattr(module, "cluster_state", lambda: state)
        return [problem.message for problem in check_launchable(spec, project)]

    assert spec.hardware.device == "auto"
    assert refusals(cluster(cpus=8)) == ["flash_attention_2 does not run on CPU."]
    assert refusals(cluster(cpus=8, gpus=8)) == []
    assert refusals(cluster(is_reachable=False)) == []


def test_a_full_cluster_or_one_that_is_away_is_no_reason_to_refuse(project: Project) -> None:
    make_run(project, state="running")
    make_run(project, state="running")

    assert check_cluster(parse_spec({}), cluster(cpus=8))[0].state == "passed"
    assert check_cluster(parse_spec({}), cluster(is_reachable=False))[0].state == "unknown"


def other_trainer(algorithm: str = "sft", **sections: Any) -> RunSpec:
    return parse_spec({"trainer": {"name": "openrlhf"}, "algorithm": algorithm, **sections})


def test_a_trainer_that_is_not_declared_may_still_be_there(settings: Any) -> None:
    settings.TRAINERS = ""

    (check,) = check_trainer(other_trainer())

    assert (check.state, check.field) == ("unknown", "trainer.version")
    assert "No environment of OpenRLHF 0.11.2 is declared" in check.text
    assert "make trainer-env TRAINER=openrlhf VERSION=0.11.2" in check.text
    assert check_trainer(parse_spec({})) == []


def test_a_declared_interpreter_is_looked_for_on_this_machine(settings: Any, tmp_path: Path) -> None:
    settings.TRAINERS = f"openrlhf={tmp_path}/python"
    (missing,) = check_trainer(other_trainer())
    (tmp_path / "python").touch()
    (there,) = check_trainer(other_trainer())
    settings.RAY_ADDRESS, settings.TRAINERS = "http://10.0.0.6:8265", "openrlhf=/no/such/python"
    (elsewhere,) = check_trainer(other_trainer())

    assert (missing.state, there.state, elsewhere.state) == ("failed", "passed", "passed")
    assert f"{tmp_path}/python, and there is no such file" in missing.text


@pytest.mark.parametrize("trainer", [name for name in trainers() if name != "native"])
@pytest.mark.usefixtures("trials_here")
def test_every_algorithm_of_other_trainers_can_be_checked(
    project: Project, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = word_problems.rows(40)  # all of them are read by the test of the demo
    monkeypatch.setattr(word_problems, "rows", lambda: few)
    for algorithm in trainers()[trainer].algorithms:
        spec = parse_spec({"trainer": {"name": trainer}, "algorithm": algorithm})

        assert {problem.field for problem in check_launchable(spec, project)} <= {
            "knobs.rollout.max_new_tokens",  # the tiny model's context is shorter than their defaults
            "knobs.train.max_sequence_tokens",
        }


@pytest.mark.usefixtures("trials_here")
def test_pairs_need_their_columns(project: Project, tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", [{"prompt": f"{i}?", "chosen": "yes", "worse": "no"} for i in range(20)])
    data = {"kind": "path", "id": str(rows)}

    (_found, failed) = check_data(other_trainer("dpo", data=data), project=project)
    named = check_data(other_trainer("dpo", data={**data, "rejected_column": "worse"}), project=project)[1]

    assert (failed[0].state, failed[0].field) == ("failed", "data.rejected_column")
    assert [check.state for check in named] == ["passed"]


def test_what_a_trainer_cannot_be_told_is_said_before_the_launch() -> None:
    (check,) = check_trainer(parse_spec({"trainer": {"name": "verl"}, "name": "run ${oc.env:HF_TOKEN}"}))

    assert check.state == "failed"
    assert "has ${ in it" in check.text
