"""Reading samples: by step, kind and text, in pages."""

import pytest

from jobs.ingest.store import AttemptCache, store
from jobs.models import Run
from jobs.telemetry.samples import read_samples
from profiling import events as make
from profiling.events import Event
from tests.batches import delivery
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db


def sample(step: int, index: int, *, is_eval: bool = False) -> Event:
    return make.sample(
        attempt=1, step=step, group=index // 4, index=index % 4, prompt=f"What is {step} plus {index}?",
        completion=f"It is {step + index}.", expected=str(step + index), reward=1.0, rewards={"math": 1.0}, tokens=5,
        is_eval=is_eval,
    )  # fmt: skip


@pytest.fixture
def run() -> Run:
    run = make_run(state="running")
    kept = [sample(step, i) for step in (1, 2, 3) for i in range(40)] + [sample(3, i, is_eval=True) for i in range(5)]
    store([delivery(run.pk, 1, kept)], memory=AttemptCache(), now=NOW)
    return run


def test_pages_go_from_the_newest_step_to_the_first(run: Run) -> None:
    first, last, past = (read_samples(run_id=run.pk, page=page) for page in (1, 3, 99))

    assert (first.total, first.num_pages, len(first.samples), len(last.samples)) == (125, 3, 50, 25)
    assert {s.step for s in first.samples} == {3, 2}
    assert [s.pk for s in past.samples] == [s.pk for s in last.samples]
    assert first.steps == (3, 2, 1)


def test_step_kind_and_text_choose(run: Run) -> None:
    assert read_samples(run_id=run.pk, step=2).total == 40
    assert read_samples(run_id=run.pk, is_eval=True).total == 5
    assert read_samples(run_id=run.pk, is_eval=True).steps == (3,)
    assert read_samples(run_id=run.pk, query="WHAT IS 2 PLUS 17").total == 1
    assert read_samples(run_id=run.pk, step=9).total == 0


def test_a_sample_that_comes_again_is_kept_once(run: Run) -> None:
    store([delivery(run.pk, 2, [sample(1, 0)])], memory=AttemptCache(), now=NOW)

    assert read_samples(run_id=run.pk, step=1).total == 40
