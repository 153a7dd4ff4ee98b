"""The timeline: spans of a window by lane; where there are too many, the longest stay, or whole steps do."""

import pytest

from jobs.ingest.compaction import compact
from jobs.ingest.store import AttemptCache, store
from jobs.models import Run
from jobs.telemetry.spans import SpansAnswer, read_spans, read_steps
from profiling import events as make
from tests.batches import T0, delivery
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db

SECOND = 10**9


@pytest.fixture
def run() -> Run:
    """A run with two lanes of 1,500 spans each, half of them compacted; span i lasts i ms and begins at second i."""
    run, memory = make_run(state="running"), AttemptCache()
    for batch in range(1, 4):
        spans = [
            make.span(phase, start=T0 + i * SECOND, duration=i * 1_000_000, attempt=1, step=i, role=role, rank=rank)
            for i in range((batch - 1) * 500, batch * 500)
            for role, rank, phase in [("vllm", 0, "rollout"), ("policy", 1, "update")]
        ]
        store([delivery(run.pk, batch, spans)], memory=memory, now=NOW)
        if batch == 2:
            compact(run_id=run.pk)
    return run


def test_all_spans_come_by_lane_and_start(run: Run) -> None:
    answer = read_spans(run_id=run.pk)

    assert (answer.n, answer.of, answer.through_seq) == (3000, 3000, 3)
    assert [(lane.role, lane.rank, len(lane.spans)) for lane in answer.lanes] == [
        ("policy", 1, 1500),
        ("vllm", 0, 1500),
    ]
    assert answer.lanes[1].spans.step.tolist() == list(range(1500))
    assert {answer.lanes[1].spans.phases[i] for i in answer.lanes[1].spans.phase} == {"rollout"}


def test_a_window_holds_what_touches_it(run: Run) -> None:
    answer = read_spans(run_id=run.pk, from_ns=T0 + 900 * SECOND + 500_000_000, to_ns=T0 + 903 * SECOND)

    assert answer.of == 8
    assert answer.lanes[0].spans.step.tolist() == [900, 901, 902, 903]  # 900 lasts 0.9 s and reaches in


def test_where_there_are_too_many_the_longest_stay_and_it_says_so(run: Run) -> None:
    answer = read_spans(run_id=run.pk, limit=10)

    assert (answer.n, answer.of) == (10, 3000)
    assert all(min(lane.spans.step.tolist()) >= 1494 for lane in answer.lanes)


def test_a_limit_out_of_range_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="limit: 0"):
        read_spans(run_id=run.pk, limit=0)


def steps_of(answer: SpansAnswer) -> list[list[int]]:
    return [lane.spans.step.tolist() for lane in answer.lanes]


def test_whole_steps_stay_the_newest_first(run: Run) -> None:
    answer = read_steps(run_id=run.pk, attempt=1, limit=7)

    assert (answer.n, answer.of) == (6, 3000)  # the fourth step would be half a one
    assert steps_of(answer) == [[1497, 1498, 1499]] * 2
    assert read_steps(run_id=run.pk, attempt=2).lanes == ()


def test_whole_steps_stay_that_are_nearest_to_a_moment(run: Run) -> None:
    answer = read_steps(run_id=run.pk, attempt=1, near_ns=T0 + 200 * SECOND, limit=6)

    assert steps_of(answer) == [[199, 200, 201]] * 2


def test_one_step_stays_however_long_it_is(run: Run) -> None:
    assert steps_of(read_steps(run_id=run.pk, attempt=1, limit=1)) == [[1499]] * 2


def test_the_step_in_which_a_window_begins_is_no_whole_one(run: Run) -> None:
    inside = {"from_ns": T0 + 900 * SECOND, "to_ns": T0 + 903 * SECOND}
    assert (
        steps_of(read_steps(run_id=run.pk, attempt=1, **inside)) == [[901, 902, 903]] * 2
    )  # 900 may have begun before it
    begun = read_steps(run_id=run.pk, attempt=1, first_step=900, **inside)
    assert steps_of(begun) == [[900, 901, 902, 903]] * 2  # a resumed attempt begins there


def test_details_can_be_left_out() -> None:
    run = make_run(state="running")
    spans = [
        make.span("update", start=T0, duration=10, attempt=1, step=1, role="policy", name=name, depth=depth)
        for name, depth in (("", 0), ("forward", 1))
    ]
    store([delivery(run.pk, 1, spans)], memory=AttemptCache(), now=NOW)

    assert (read_spans(run_id=run.pk).of, read_spans(run_id=run.pk, depth=0).of) == (2, 1)
