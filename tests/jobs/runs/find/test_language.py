"""The filter line: what it means, where it is wrong, and what may stand next."""

import pytest
from django.utils import timezone

from jobs.models import Run
from jobs.runs.find.completion import complete
from jobs.runs.find.index import catch_up_all
from jobs.runs.find.language import parse
from jobs.runs.find.names import FilterInvalid
from jobs.runs.find.terms import AllOf, AnyOf, HasTag, HasText, HasWord, IsCompared, NotSo, Term
from tests.rows import make_project

LR = "optimizer.learning_rate"
A, B, C = HasWord("a"), HasWord("b"), HasWord("c")


@pytest.mark.parametrize(
    ("line", "term"),
    [
        ("", AllOf()),
        ("A", A),
        ("a b", AllOf((A, B))),
        ("a and b", AllOf((A, B))),
        ("a or b c", AnyOf((A, AllOf((B, C))))),
        ("(a or b) c", AllOf((AnyOf((A, B)), C))),
        ("a -b", AllOf((A, NotSo(B)))),
        ("not (a b)", NotSo(AllOf((A, B)))),
        ("-(a or -b)", NotSo(AnyOf((A, NotSo(B))))),
        ('"or" "two (words)"', AllOf((HasWord("or"), HasWord("two (words)")))),
        ("a-b", HasWord("a-b")),
        ("state:running,Failed", HasText("state", ("running", "failed"))),
        ("tag:x,y", AnyOf((HasTag("x"), HasTag("y")))),
        ('name:"my run"', HasText("name", ("my run",), is_part=True)),
        ("-name:foo", NotSo(HasText("name", ("foo",), is_part=True))),
        ("by:me", HasText("author", ("ada",))),
        ("lr>1e-5", IsCompared("knob", LR, ">", 1e-5)),
        ("learning_rate >= 1e-5", IsCompared("knob", LR, ">=", 1e-5)),
        ("reward/mean==0.6", IsCompared("metric", "reward/mean", "=", 0.6)),
        ("optimizer.schedule!=Cosine", IsCompared("knob", "optimizer.schedule", "!=", "cosine")),
        ("duration>90min", IsCompared("field", "duration", ">", 5400.0)),
        ("created>=1970-01-02", IsCompared("field", "created", ">=", 86400.0)),
    ],
)
def test_a_line_says(line: str, term: Term) -> None:
    assert parse(line, username="ada") == term


def test_a_name_that_is_like_none_is_told_what_there_is() -> None:
    with pytest.raises(FilterInvalid) as refused:
        parse("nonsense>3", username="ada")

    assert str(refused.value) == (
        "There is no knob or metric 'nonsense'. Use step, value, speed, duration, created, started, ended, the id of a "
        "knob, or a metric."
    )


@pytest.mark.parametrize(
    ("line", "piece", "sentence"),
    [
        ("a stat:failed", "stat:failed", "There is no filter “stat:”. Use state"),
        ("a state:done b", "state:done", "There is no state 'done'. Use queued, starting, running, stopping, "),
        ("tag:", "tag:", "“tag:” stands alone"),
        ("x learnin_rate>1", "learnin_rate>1", "Did you mean learning_rate?"),
        ("lr>", "lr>", "A value is missing after “lr>”"),
        ("lr>much", "lr>much", "is not a number"),
        ("created>soon", "created>soon", "2026-11-20"),
        ("a (b", "(", "not closed"),
        ("a) b", ")", "closes nothing"),
        ("()", ")", "missing here"),
        ("a or", "or", "missing here"),
        ("or a", "or", "missing here"),
        ('a "b', '"', "no second one"),
        ("every_steps>3", "every_steps>3", "checkpoint.every_steps, eval.every_steps"),
    ],
)
def test_what_is_wrong_is_pointed_at(line: str, piece: str, sentence: str) -> None:
    with pytest.raises(FilterInvalid) as refused:
        parse(line)

    assert sentence in str(refused.value)
    assert line[refused.value.start : refused.value.end] == piece


def test_depth_and_length_have_an_end() -> None:
    for line in ("(" * 500 + "a" + ")" * 500, "-" * 900 + "a", "a" * 1001):
        with pytest.raises(FilterInvalid):
            parse(line)


@pytest.mark.django_db
def test_completion_knows_names_and_the_values_that_runs_have() -> None:
    project = make_project()
    spec = {"algorithm": "grpo", "model": {"id": "Qwen/Qwen3"}, "knobs": {LR: {"value": 1e-4}}}
    for i, rewards in enumerate((0.25, 0.75)):
        values = {"reward/mean": rewards}
        Run.objects.create(
            id=f"r-{i}",
            project=project,
            spec=spec,
            tags=["base line"[:4]],
            latest_values=values,
            created_at=timezone.now(),
        )
    catch_up_all()

    def offered(line: str, at: int | None = None) -> list[str]:
        return [one.text for one in complete(project, line, len(line) if at is None else at).suggestions]

    assert offered("sta")[0] == "state:"
    assert offered("state:fa") == ["failed"]
    assert offered("state:failed,ru") == ["running"]
    assert offered("a -tag:b") == ["base"]
    assert "tag:base" in offered("bas")
    assert LR in offered("learning")
    assert offered("reward/m")[0] == "reward/mean"
    assert offered("reward/mean>") == ["0.25", "0.75"]
    assert offered("model:") == ["qwen/qwen3"]
    assert offered("lr=") == ["0.0001"]
    assert "me" in offered("by:")
    assert offered("algorithm:g x", at=11) == ["grpo"]
    where = complete(project, "a state:failed,ru b", 17)
    assert "a state:failed,ru b"[where.start : where.end] == "ru"
