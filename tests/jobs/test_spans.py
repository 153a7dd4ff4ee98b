"""The timeline: spans of a window by lane; where there are too many, the longest stay."""

import pytest

from jobs.folding import fold
from jobs.models import Run
from jobs.spans import read_spans
from jobs.storing import Memory, store
from profiling import events as make
from tests.batches import T0, delivery
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db

SECOND = 10**9


@pytest.fixture
def run() -> Run:
    """A run with two lanes of 1,500 spans each, half of them folded; span i lasts i ms and begins at second i."""
    run, memory = make_run(state="running"), Memory()
    for batch in range(1, 4):
        spans = [
            make.span(phase, start=T0 + i * SECOND, duration=i * 1_000_000, attempt=1, step=i, role=role, rank=rank)
            for i in range((batch - 1) * 500, batch * 500)
            for role, rank, phase in [("vllm", 0, "rollout"), ("policy", 1, "update")]
        ]
        store([delivery(run.pk, batch, spans)], memory=memory, now=NOW)
        if batch == 2:
            fold(run_id=run.pk)
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
