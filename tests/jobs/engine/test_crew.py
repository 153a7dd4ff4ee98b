"""Whose failure is told when several workers fail at once; Ray's answers come in an order that the test chooses."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError, RayTaskError

from jobs.engine import crew as crew_module
from jobs.engine.actor import Answer, RoleError
from jobs.engine.crew import Crew, Pending, Worker, WorkerFailed
from jobs.engine.places import Place

HERE = Place(node="", index=0, address="10.0.0.1", name="head")
LOST_PEER = RoleError("RuntimeError: Connection closed by peer", "", "")


class Story:
    """Stands for Ray: calls end in the order of the list, each with what it gives or raises; others never end."""

    def __init__(self, *outcomes: tuple[int, Any]) -> None:
        self.outcomes = dict(outcomes)
        self.order = [rank for rank, _ in outcomes]

    def wait(self, references: list[int], *, num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        ready = [rank for rank in self.order if rank in references][:num_returns]
        return ready, [r for r in references if r not in ready]

    def get(self, reference: int) -> Answer:
        outcome = self.outcomes[reference]
        if isinstance(outcome, Exception):
            raise outcome
        return Answer(value=outcome, spans=(), readings={}, lines={})


def raised(cause: Exception) -> RayTaskError:
    return RayTaskError("call", "a traceback", cause)


def gather(monkeypatch: pytest.MonkeyPatch, story: Story, *, num_ranks: int = 2) -> list[Any]:
    monkeypatch.setattr(crew_module, "ray", SimpleNamespace(wait=story.wait, get=story.get))
    monkeypatch.setattr(crew_module, "_DEATH_SECONDS", 0.05)
    crew = object.__new__(Crew)
    crew._on_answer = lambda worker, answer: None
    workers = [Worker(None, role="policy", rank=rank, place=HERE) for rank in range(num_ranks)]
    return crew.gather([Pending(worker=w, reference=w.rank, step=7) for w in workers])


def test_values_come_in_the_order_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gather(monkeypatch, Story((1, "b"), (0, "a"))) == ["a", "b"]


def test_a_death_is_told_before_the_errors_that_it_caused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerFailed) as caught:
        gather(monkeypatch, Story((0, raised(LOST_PEER)), (1, RayActorError())))

    assert (caught.value.rank, caught.value.is_death, caught.value.step) == (1, True, 7)


def test_an_error_is_told_when_nobody_died(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerFailed, match="Connection closed by peer") as caught:
        gather(monkeypatch, Story((0, raised(LOST_PEER))), num_ranks=3)

    assert (caught.value.rank, caught.value.is_death) == (0, False)


def test_of_several_errors_the_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = raised(RoleError("ValueError: wrong", "", ""))

    with pytest.raises(WorkerFailed, match="ValueError: wrong") as caught:
        gather(monkeypatch, Story((1, first), (0, raised(LOST_PEER))))

    assert caught.value.rank == 1


def test_a_process_that_was_killed_is_told_without_rays_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    report = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: Actor\n"
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. "
        "End of file. Some common causes include: (1) the process was killed by the OOM killer, (2) ray stop --force"
    )

    with pytest.raises(WorkerFailed) as failed:
        gather(monkeypatch, Story((1, RayActorError(error_msg=report))))

    assert failed.value.text == "it was killed, or crashed in native code (Ray saw its connection end)"
