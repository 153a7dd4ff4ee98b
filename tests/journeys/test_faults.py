"""A run whose runner is killed, and whose checkpoint is lost, starts again by itself.

That parts of the console are killed under a run is in tests/jobs/runner/test_with_console.py, a Redis that forgets
everything in tests/jobs/test_ingest_process.py, a cluster that is lost in tests/jobs/processes/test_reconcile.py; all
faults, at three moments each, are in `make proof-faults`.
"""

from collections.abc import Iterator

import pytest

from tests.journeys.retrying import RetriedRun
from tests.proofs.faults.stack import Stack, running_stack, until
from tests.services import own_environment

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.faults]


@pytest.fixture(scope="module")
def stack(warm_environment: dict[str, str]) -> Iterator[Stack]:
    """A console to break."""
    with running_stack(own_environment() | warm_environment) as running:
        yield running


@pytest.mark.slow("a run of two attempts")
def test_a_run_that_loses_its_runner_and_a_checkpoint_starts_again_by_itself(stack: Stack) -> None:
    run = RetriedRun(stack)
    until(run.is_ready, seconds=180, what="it had two checkpoints")

    run.hit()

    run.evaluate()
