"""How many steps OpenRLHF's own progress bars promise, from the start and after a checkpoint."""

import pytest

from jobs.adapters.openrlhf.logs import planned_steps
from jobs.catalog.spec.parse import parse_spec

SPEC = parse_spec(
    {
        "trainer": {"name": "openrlhf"},
        "algorithm": "dpo",
        "knobs": {"train.batch_size": 64, "train.micro_batch_size": 16, "train.num_epochs": 3},
        "hardware": {"policy_ranks": 1},
    }
)  # four micro-batches a step


def bars(*, epochs: int, epoch: int, micro_batches: int) -> str:
    """Return what OpenRLHF draws: the epochs that are left, and the micro-batches that are left of the first one."""
    return (
        f"Train epoch:   0%|          | 0/{epochs} [00:00<?, ?it/s]\n"
        f"Train step of epoch {epoch}:   0%|          | 0/{micro_batches} [00:00<?, ?it/s]"
    )


@pytest.mark.parametrize(
    ("origin", "epochs", "epoch", "micro_batches"),
    [(0, 3, 0, 40), (4, 3, 0, 24), (10, 2, 1, 40), (13, 2, 1, 28), (29, 1, 2, 4)],
)
def test_a_run_has_as_many_steps_wherever_it_goes_on(origin: int, epochs: int, epoch: int, micro_batches: int) -> None:
    """Three epochs of ten steps."""
    drawn = bars(epochs=epochs, epoch=epoch, micro_batches=micro_batches)

    assert planned_steps(drawn, SPEC, origin) == 30
    assert planned_steps(drawn.partition("\n")[0], SPEC, origin) is None


@pytest.mark.parametrize(("origin", "micro_batches"), [(0, 42), (4, 26)])
def test_micro_batches_that_fill_no_step_go_into_one_of_the_next_epoch(origin: int, micro_batches: int) -> None:
    """Three epochs of 42 micro-batches are 31 steps of four."""
    assert planned_steps(bars(epochs=3, epoch=0, micro_batches=micro_batches), SPEC, origin) == 31
