"""The first error of the process that failed first, and kinds of errors and warnings with what is known of them."""

from datetime import datetime, timedelta

import pytest

from jobs.diagnosis.log_findings import log_findings
from jobs.diagnosis.log_rules import LogRuleRefused, log_rules_of, set_log_rules
from jobs.ingest.store import AttemptCache, store
from jobs.models import AuditEvent, LogChunk, Run
from profiling import events as make
from tests.batches import delivery
from tests.jobs.catalog.test_log_line import OF_PROFILER
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

LOST = "[rank0]: RuntimeError: Connection closed by peer [10.0.0.5]:4711"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
DEAD_RANK = [
    ("policy", 0, 0, ["ERROR flash_attn is not there, eager it is"]),
    ("policy", 1, 3000, ["loss=0.3", LOST]),
    ("policy", 3, 3010, ["[rank3]: Traceback (most recent call last):", '[rank3]:   File "x.py", line 3, in f', OOM]),
    ("driver", 0, 3020, ["ray.exceptions.RayTaskError(OutOfMemoryError): policy 3"]),
]


def logged(run: Run, told: list[tuple[str, int, int, list[str]]], *, ended: datetime | None = None) -> Run:
    """Give the run these lines: role, rank, second, texts."""
    memory = AttemptCache()
    for batch, (role, rank, second, texts) in enumerate(told):
        store([delivery(run.pk, batch + 1, [make.log(texts, attempt=1, role=role, rank=rank)])], memory=memory, now=NOW)
        newest = LogChunk.objects.filter(run=run).order_by("-pk").values_list("pk", flat=True)[:1]
        LogChunk.objects.filter(pk__in=list(newest)).update(at=NOW + timedelta(seconds=second))
    run.attempts.update(state=run.state, ended_at=ended)
    return run


def test_the_first_error_is_of_the_worker_that_failed_first_and_says_what_its_traceback_ends_with() -> None:
    run = logged(make_run(state="failed"), DEAD_RANK, ended=NOW + timedelta(seconds=3100))

    first = log_findings(run).first_error

    assert first is not None
    assert (first.line.role, first.line.rank, first.line.line) == ("policy", 3, 0)
    assert first.text == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def test_whom_the_cause_names_goes_before_others_and_old_errors_count_where_there_is_no_other() -> None:
    run = logged(make_run(state="failed"), DEAD_RANK, ended=NOW + timedelta(seconds=3100))
    run.attempts.update(cause={"role": "policy", "rank": 1})
    named = log_findings(run).first_error
    old = logged(make_run(state="failed"), DEAD_RANK[:1], ended=NOW + timedelta(seconds=9000))

    assert named is not None
    assert named.line.rank == 3  # rank 1 only tells of the other's end
    found = log_findings(old).first_error
    assert found is not None
    assert found.text == "flash_attn is not there, eager it is"
    assert log_findings(logged(make_run(state="finished"), DEAD_RANK)).first_error is None
    assert log_findings(logged(make_run(state="failed"), [])).first_error is None


def test_what_the_profiler_writes_of_a_capture_is_neither_the_first_error_nor_a_kind() -> None:
    """The process that was killed has written nothing else: those lines would be its first error."""
    told = [("policy", 1, 3000, OF_PROFILER), ("driver", 0, 3020, [OOM])]
    run = logged(make_run(state="failed"), told, ended=NOW + timedelta(seconds=3100))
    run.attempts.update(cause={"role": "policy", "rank": 1})

    found = log_findings(run)

    assert found.first_error is not None
    assert found.first_error.line.role == "driver"
    assert [kind.said for kind in found.kinds] == [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate # GiB"
    ]
    assert found.num_lines == 1


def test_lines_that_differ_in_numbers_are_one_kind_with_its_remedy() -> None:
    project = make_project()
    rule = {"pattern": "shard \\d+ is stale", "label": "Stale shard", "remedy": "Run the sync.", "level": "error"}
    set_log_rules(project=project, raw=[rule], user=make_user(project=project, role="admin"))
    run = logged(
        make_run(project, state="running"),
        [
            ("policy", n, n, [f"2026-11-27 12:00:0{n} WARNING took {n} ms at 0x7f{n}", "step 3", f"Shard {n} is stale"])
            for n in range(3)
        ]
        + [("vllm", 0, 9, ["ValueError: No available memory for the cache blocks. Try 1"])],
    )

    found = log_findings(run)

    kinds = [(k.level, k.count, k.num_processes, k.said, k.label, k.remedies[:1]) for k in found.kinds]
    assert (
        kinds[1:]
        == [
            ("error", 3, 3, "Shard # is stale", "Stale shard", ("Run the sync.",)),
            ("warning", 3, 3, "WARNING took # ms at #", "", ()),
        ]
        or kinds[0][4] == "Stale shard"
    )
    assert {kind[4] for kind in kinds} >= {"Stale shard", ""}
    assert any(kind.symptom_id and kind.remedies for kind in found.kinds)
    assert (found.num_lines, found.is_whole) == (7, True)


@pytest.mark.parametrize(
    ("rule", "field", "reason"),
    [
        ({"pattern": "a[", "label": "x", "level": "error"}, "pattern", "missing ]"),
        ({"pattern": "a*", "label": "x", "level": "error"}, "pattern", "every line"),
        ({"pattern": "", "label": "x", "level": "error"}, "pattern", "missing"),
        ({"pattern": "x" * 201, "label": "x", "level": "error"}, "pattern", "at most 200"),
        ({"pattern": "a", "label": "x", "level": "bad"}, "level", "error, warning"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, str], field: str, reason: str) -> None:
    project = make_project()

    with pytest.raises(LogRuleRefused, match=reason) as refused:
        set_log_rules(project=project, raw=[rule], user=None)

    assert refused.value.field == field
    assert log_rules_of(project) == ()
    assert not AuditEvent.objects.filter(verb="log_rules.set").exists()
