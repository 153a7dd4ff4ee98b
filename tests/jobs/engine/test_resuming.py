"""What a resume is refused for before any worker is started, and what becomes of the best model so far."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_json as spec_json
from jobs.engine.checkpoints.checkpoint import Checkpoints, CheckpointSource, LoopState
from jobs.engine.checkpoints.resume import carry_best, check_data, checkpoint_to_resume, fingerprint, first_rendered
from jobs.engine.data.examples import Example
from jobs.engine.problem import RunProblem
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.fake_ranks import FakeWorkerGroup, Rank

SPEC: dict[str, Any] = {"knobs": {"train.num_steps": 60}}
EXAMPLE = Example(row=0, prompt="", answer="", segments=(), tokens=(1, 2, 3), is_trained=(False, True, True))
EXAMPLES = [replace(EXAMPLE, row=k, tokens=(k, k + 1)) for k in range(3000)]


def saved(run: Path, *, step: int = 40, best_step: int = 20) -> Path:
    """A checkpoint of attempt 1."""
    state = LoopState(step=step, num_consumed=640, best_score=0.9, best_step=best_step, evaluated_step=step)
    about = {"spec": spec_json(parse_spec(SPEC)), "data": fingerprint(EXAMPLES)}
    return (
        Checkpoints(run / "a1" / "checkpoints", keep=2)
        .save(cast(WorkerGroup, FakeWorkerGroup(Rank())), state, about=about)
        .folder
    )


def resume(run: Path, folder: Path, spec: dict[str, Any] = SPEC, *, step: int = 40) -> CheckpointSource:
    """What attempt 2 finds."""
    (run / "a2").mkdir(parents=True, exist_ok=True)
    (run / "a2" / "resume.json").write_text(json.dumps({"attempt": 1, "step": step, "folder": str(folder)}))
    found = checkpoint_to_resume(run / "a2", parse_spec(spec))
    assert found is not None
    return found


def test_without_the_file_an_attempt_starts_from_the_beginning(tmp_path: Path) -> None:
    assert checkpoint_to_resume(tmp_path, parse_spec(SPEC)) is None


def test_a_checkpoint_is_taken_up_where_it_stands(tmp_path: Path) -> None:
    found = resume(tmp_path, saved(tmp_path))

    assert found.name == "Checkpoint 40 of attempt 1"
    assert found.state == LoopState(step=40, num_consumed=640, best_score=0.9, best_step=20, evaluated_step=40)


def test_ranks_stage_batches_and_rate_may_differ(tmp_path: Path) -> None:
    knobs = {"memory.zero_stage": "3", "train.micro_batch_size": 4, "optimizer.learning_rate": 1e-4}

    found = resume(
        tmp_path, saved(tmp_path), {"hardware": {"layout": "shared", "policy_ranks": 1}, "knobs": SPEC["knobs"] | knobs}
    )

    assert found.state.step == 40


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"algorithm": "sft"}, "algorithm 'grpo', this attempt has 'sft'"),
        ({"model": {"kind": "path", "id": "/models/b"}}, "model.kind 'bundled', this attempt has 'path'"),
        ({"knobs": {"train.seed": 5}}, "train.seed 0, this attempt has 5"),
        ({"knobs": {"train.num_steps": 39}}, "past the last step: train.num_steps is 39"),
    ],
)
def test_a_difference_that_makes_going_on_meaningless_is_named(tmp_path: Path, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(RunProblem) as refused:
        resume(tmp_path, saved(tmp_path), spec)

    assert refused.value.field == "resume"
    assert said in refused.value.message


def test_a_resume_file_that_names_another_step_or_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunProblem, match=r"Checkpoint 30 of attempt 1 says that it is of step 40"):
        resume(tmp_path, saved(tmp_path), step=30)

    (tmp_path / "a2" / "resume.json").write_text('{"attempt": 1}')
    with pytest.raises(RunProblem, match=r"resume\.json is not what it should be"):
        checkpoint_to_resume(tmp_path / "a2", parse_spec(SPEC))


def test_data_that_changed_are_refused(tmp_path: Path) -> None:
    found = resume(tmp_path, saved(tmp_path))

    check_data(found, EXAMPLES)
    with pytest.raises(RunProblem, match=r"2,999 usable rows, then 3,000"):
        check_data(found, EXAMPLES[1:])
    with pytest.raises(RunProblem, match="other content in as many rows"):
        check_data(found, EXAMPLES[::-1])


def test_prompts_keep_the_date_on_which_the_run_first_laid_them_out(tmp_path: Path) -> None:
    """A template may write it: on the next day the data would be others, and the resume refused."""
    day = datetime(2026, 11, 26, 23, 59)  # noqa: DTZ001, local as in templates
    at_first: dict[str, Any] = {"data": {**fingerprint(EXAMPLES), "rendered_at": day.isoformat()}}
    found = resume(tmp_path, saved(tmp_path))
    later = replace(found, index={**found.index, **at_first})

    assert first_rendered(later) == day
    check_data(later, EXAMPLES)
    assert first_rendered(found) is None  # of before it was kept
    assert first_rendered(None) is None


def best_of_attempt_1(run: Path, step: int) -> None:
    folder = run / "a1" / "model" / "best"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "pitwall.json").write_text(json.dumps({"step": step, "eval/accuracy": 0.9}))


def test_the_best_model_so_far_comes_along(tmp_path: Path) -> None:
    best_of_attempt_1(tmp_path, 20)

    about = carry_best(resume(tmp_path, saved(tmp_path)), tmp_path / "a2")

    assert about == {"step": 20, "eval/accuracy": 0.9}
    taken = tmp_path / "a2" / "model" / "best"
    assert sorted(f.name for f in taken.iterdir()) == ["model.safetensors", "pitwall.json"]
    assert (taken / "model.safetensors").read_bytes() == b"weights"


@pytest.mark.parametrize("step", [None, 44])
def test_a_best_model_of_the_dead_branch_does_not_come_along(tmp_path: Path, step: int | None) -> None:
    if step is not None:
        best_of_attempt_1(tmp_path, step)

    assert carry_best(resume(tmp_path, saved(tmp_path)), tmp_path / "a2") is None
    assert not (tmp_path / "a2" / "model").exists()
