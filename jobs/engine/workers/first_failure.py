"""Which worker of a run died first. What fails first is often not what died.

A rank that is killed closes its connections: its peers raise before Ray knows of the death, and with NCCL they may die
of it in their turn. A worker that dies between two calls is not missed until the next one of its own, if others do not
fail of it before.
"""

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray._private import state as gcs
from ray.exceptions import ActorUnavailableError, RayError

from jobs.engine.workers.worker import DEAD_ACTOR_ERRORS, Worker, WorkerFailed

_TOGETHER_SECONDS = 1.0  # within which Ray tells of those who died with the first, or before it
_AGAIN_SECONDS = 0.2


def first_failure(workers: Sequence[Worker], *, step: int, phase: str, seconds: float) -> WorkerFailed | None:
    """Return the failure of the worker that died first; None if Ray reports none within `seconds`.

    `step` and `phase` are when it was noticed.
    Returns earlier if every worker answers. One that is at work does not answer, and is waited for all the time.
    """
    failures = _dead_workers(workers, step=step, phase=phase, seconds=seconds)
    if len(failures) > 1:
        failures.sort(key=lambda failure: _ended_at(failure[0]))
    return failures[0][1] if failures else None


def _dead_workers(
    workers: Sequence[Worker], *, step: int, phase: str, seconds: float
) -> list[tuple[Worker, WorkerFailed]]:
    """Return the dead workers in the order in which Ray reports them."""
    waiting = {_ping(worker): worker for worker in workers}
    dead: list[tuple[Worker, WorkerFailed]] = []
    end = time.monotonic() + seconds
    while waiting and (left := end - time.monotonic()) > 0:
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=left)
        for reference in ready:
            worker = waiting.pop(reference)
            try:
                ray.get(reference)
            except ActorUnavailableError:  # its connection broke, and nobody knows yet why
                time.sleep(_AGAIN_SECONDS)
                waiting[_ping(worker)] = worker
            except DEAD_ACTOR_ERRORS as error:
                dead.append((worker, worker.died(error, step=step, phase=phase)))
                end = min(end, time.monotonic() + _TOGETHER_SECONDS)
            except RayError:  # Ray itself does not answer
                continue
    return dead


def _ping(worker: Worker) -> Any:
    """Ask a worker whether it is there: one that is gone answers at once, with its death."""
    return worker.actor.__ray_ready__.remote()


def _ended_at(worker: Worker) -> float:
    """Return when Ray saw the worker end, in ms since 1970; inf if it does not say, so that the first told counts."""
    try:
        return float(gcs.actors(worker.actor._actor_id.hex())["EndTime"]) or float("inf")
    except Exception:  # not part of Ray's public interface, and wanted only to order failures
        return float("inf")
