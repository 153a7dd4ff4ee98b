"""A teacher in a real run: on the student's own samples, and on given answers; and teachers that are refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.engine.data.teacher_files import check_teacher, check_vocabulary, teacher_folder
from jobs.engine.problem import RunProblem
from tests.jobs.engine.student import TEACHER, make_student


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model that was the teacher before noise came into its weights."""
    return make_student(tmp_path_factory.mktemp("student") / "model")


def spec_of(algorithm: str, student: Path, layout: str, **knobs: Any) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "model": {"kind": "path", "id": str(student)},
        "hardware": {"layout": layout, "policy_ranks": 1},
        "profile": {"nsys_ready": "off"},
        "knobs": {
            "models.teacher_path": TEACHER,
            "algorithm.distillation_top_k": 16,
            "optimizer.learning_rate": 1e-3,
            "train.num_steps": 4,
            "eval.num_prompts": 0,
            "checkpoint.every_steps": 0,
        }
        | {name.replace("__", "."): value for name, value in knobs.items()},
    }


@pytest.mark.engine
@pytest.mark.ray
def test_a_student_comes_nearer_to_its_teacher_on_its_own_samples(
    start_engine: Any, student: Path, tmp_path: Path
) -> None:
    spec = spec_of(
        "distill_on_policy", student, "colocated", rollout__prompts_per_step=32, rollout__samples_per_prompt=1
    )

    ended = start_engine(tmp_path, spec).wait()

    assert ended.code == 0, ended.output
    gap = ended.series("teacher/gap")
    assert sorted(gap) == [1, 2, 3, 4]
    assert 0 < gap[4] < 0.8 * gap[1]
    for name in ("reward/mean", "teacher/overlap", "teacher/entropy", "teacher/tail", "time/reference_seconds"):
        assert sorted(ended.series(name)) == [1, 2, 3, 4], name
    assert ended.series("loss/distillation") == pytest.approx(gap)  # beta 1
    assert not ended.series("kl/reference")
    assert not ended.series("groups/zero_variance_fraction")


@pytest.mark.proof
@pytest.mark.engine
@pytest.mark.ray
def test_given_answers_are_learned_from_a_teacher_with_a_worker_of_its_own(
    start_engine: Any, student: Path, tmp_path: Path
) -> None:
    ended = start_engine(tmp_path, spec_of("distill", student, "split", train__batch_size=32)).wait()

    assert ended.code == 0, ended.output
    loss = ended.series("loss/distillation")
    assert sorted(loss) == [1, 2, 3, 4]
    assert 0 < loss[4] < 0.8 * loss[1]
    assert all(0 < share <= 1 for share in ended.series("teacher/overlap").values())
    assert "teacher" in {event["role"] for event in ended.of("span")}


def test_a_teacher_of_the_same_vocabulary_is_taken(student: Path) -> None:
    check_teacher(parse_spec(spec_of("distill", student, "split")))


def test_a_teacher_of_another_vocabulary_is_refused_with_what_differs(student: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(student, other)
    table = json.loads((other / "tokenizer.json").read_text())
    first, second = list(table["model"]["vocab"])[-2:]
    ids = table["model"]["vocab"]
    ids[first], ids[second] = ids[second], ids[first]
    (other / "tokenizer.json").write_text(json.dumps(table))

    with pytest.raises(RunProblem, match="of which 2 have other ids") as problem:
        check_vocabulary(student, other)

    assert problem.value.field == "knobs.models.teacher_path"


def test_a_teacher_that_is_not_there_is_named_by_its_own_field(student: Path) -> None:
    spec = parse_spec(spec_of("distill", student, "split", models__teacher_path="/nowhere/teacher"))

    with pytest.raises(RunProblem, match="The teacher: There is no folder '/nowhere/teacher'") as problem:
        teacher_folder(spec)

    assert problem.value.field == "knobs.models.teacher_path"


def test_a_run_without_a_teacher_is_refused_before_it_starts() -> None:
    found = {finding.rule: finding.level for finding in findings(parse_spec({"algorithm": "distill"}))}

    assert found["algorithm.teacher_not_named"] == "error"


def test_knobs_of_the_policy_gradient_are_none_of_distillation() -> None:
    with pytest.raises(SpecInvalid, match="kl_coefficient"):
        parse_spec({"algorithm": "distill_on_policy", "knobs": {"algorithm.kl_coefficient": 0.1}})
