"""Whose failure is told when several workers fail at once; Ray's answers come in an order that the test chooses."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    OwnerDiedError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from jobs.engine.failures.failure_cause import cause_of
from jobs.engine.rollouts.reward import RewardFailed
from jobs.engine.session import Session
from jobs.engine.workers import first_failure, worker
from jobs.engine.workers import worker_group as worker_group_module
from jobs.engine.workers.actor import CallResult, RoleError
from jobs.engine.workers.node_placement import RunNode
from jobs.engine.workers.worker import DEAD_ACTOR_ERRORS, Pending, Worker, WorkerFailed
from jobs.engine.workers.worker_group import WorkerGroup

HERE = RunNode(ray_id="", index=0, address="10.0.0.1", name="head")
LOST_PEER = RoleError("RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.5]:31", "", "")
KILLED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: Actor\n"
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. "
    "End of file. Some common causes include: (1) the process was killed by the OOM killer, (2) ray stop --force"
)
SIGNALLED = "it was killed, or crashed in native code (Ray saw its connection end)"
REFERENCE = "00" * 28


class Scenario:
    """Stands for Ray. Calls end in the order of `outcomes`, each with what it gives or raises; others never end.

    `dead`: what Ray says of a worker that is asked whether it is there, by rank; `ended`: when it saw it end. `deaf`:
    ranks that are at work and do not answer.
    """

    def __init__(
        self,
        *outcomes: tuple[int, Any],
        dead: dict[int, Exception] | None = None,
        ended: dict[int, float] | None = None,
        deaf: tuple[int, ...] = (),
    ) -> None:
        self.order = [f"call {rank}" for rank, _ in outcomes]
        self.outcomes: dict[str, Any] = {f"call {rank}": outcome for rank, outcome in outcomes}
        self.dead, self.ended, self.deaf = dead or {}, ended or {}, deaf
        self.budgets: list[float] = []
        self.now = 1000.0

    def ask(self, rank: int) -> str:
        reference = f"there {rank}"
        if rank not in self.deaf:
            self.order.append(reference)
            self.outcomes[reference] = self.dead.get(rank, True)
        return reference

    def wait(self, references: list[str], *, num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        self.budgets.append(timeout)
        ready = [each for each in self.order if each in references][:num_returns]
        if not ready:
            self.pass_(timeout)
        return ready, [r for r in references if r not in ready]

    def pass_(self, seconds: float) -> None:
        self.now += seconds

    def get(self, reference: str) -> Any:
        outcome = self.outcomes[reference]
        if isinstance(outcome, Exception):
            raise outcome
        return CallResult(value=outcome, spans=(), readings={}, lines={})

    def actors(self, actor_id: str) -> dict[str, float]:
        return {"EndTime": self.ended[int(actor_id)]}

    def actor(self, rank: int) -> Any:
        identity = SimpleNamespace(hex=lambda: str(rank))
        there = SimpleNamespace(remote=lambda: self.ask(rank))
        address = SimpleNamespace(remote=lambda: f"call {rank}")
        return SimpleNamespace(__ray_ready__=there, _actor_id=identity, address=address)


def raised(cause: Exception) -> RayTaskError:
    return RayTaskError("call", "a traceback", cause)


def workers_of(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, *, num_ranks: int = 2) -> WorkerGroup:
    fake = SimpleNamespace(wait=scenario.wait, get=scenario.get)
    for module in (worker_group_module, first_failure, worker):
        monkeypatch.setattr(module, "ray", fake)
    monkeypatch.setattr(first_failure, "gcs", scenario)
    monkeypatch.setattr(first_failure, "time", SimpleNamespace(monotonic=lambda: scenario.now, sleep=scenario.pass_))
    workers = object.__new__(WorkerGroup)
    workers._on_answer = lambda worker, answer: None
    workers.by_role = {
        "policy": [Worker(scenario.actor(rank), role="policy", rank=rank, node=HERE) for rank in range(num_ranks)]
    }
    return workers


def gather(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, *, num_ranks: int = 2) -> list[Any]:
    workers = workers_of(monkeypatch, scenario, num_ranks=num_ranks)
    calls = [Pending(worker=w, reference=f"call {w.rank}", step=7, phase="rollout") for w in workers.policies]
    return workers.gather(calls)


def told(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, *, num_ranks: int = 2) -> WorkerFailed:
    with pytest.raises(WorkerFailed) as caught:
        gather(monkeypatch, scenario, num_ranks=num_ranks)
    return caught.value


def test_values_come_in_the_order_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gather(monkeypatch, Scenario((1, "b"), (0, "a"))) == ["a", "b"]


def test_a_death_is_told_before_the_errors_that_it_caused(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = told(monkeypatch, Scenario((0, raised(LOST_PEER)), dead={1: RayActorError(error_msg=KILLED)}))

    assert (failed.rank, failed.how, failed.step, failed.text) == (1, "died", 7, SIGNALLED)
    assert failed.phase == "rollout"


def test_who_died_after_its_own_answer_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario((1, "done"), (0, raised(LOST_PEER)), dead={1: ActorDiedError()})

    assert (told(monkeypatch, scenario).rank, told(monkeypatch, scenario).how) == (1, "died")


def test_of_several_deaths_the_first_is_told_in_whatever_order_ray_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {0: RayActorError(error_msg=KILLED), 2: RayActorError(error_msg=KILLED)}
    scenario = Scenario((0, ActorDiedError()), dead=both, ended={0: 2000.0, 2: 1000.0}, deaf=(1,))

    assert told(monkeypatch, scenario, num_ranks=3).rank == 2


def test_the_death_that_is_told_first_counts_where_ray_says_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {0: RayActorError(error_msg=KILLED), 2: RayActorError(error_msg=KILLED)}

    assert told(monkeypatch, Scenario((2, ActorDiedError()), dead=both), num_ranks=3).rank == 0


def test_an_error_is_told_when_nobody_died(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = told(monkeypatch, Scenario((0, raised(LOST_PEER))), num_ranks=3)

    assert (failed.rank, failed.how) == (0, "raised")
    assert "Connection closed by peer" in failed.text


def test_a_lost_connection_is_given_the_time_in_which_ray_notices_a_dead_node(monkeypatch: pytest.MonkeyPatch) -> None:
    own_error = Scenario((0, raised(RoleError("ValueError: wrong", "", ""))), deaf=(1,))
    lost_peer = Scenario((0, raised(LOST_PEER)), deaf=(1,))
    told(monkeypatch, own_error)
    told(monkeypatch, lost_peer)

    assert max(own_error.budgets[1:]) == worker_group_module._FAILURE_SECONDS
    assert max(lost_peer.budgets[1:]) == worker_group_module._NODE_SECONDS


def test_of_several_errors_the_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first = raised(RoleError("ValueError: wrong", "", ""))

    failed = told(monkeypatch, Scenario((1, first), (0, raised(LOST_PEER))))

    assert (failed.rank, failed.text) == (1, "ValueError: wrong")


@pytest.mark.parametrize(
    "error",
    [
        RayActorError(error_msg=KILLED),
        ActorDiedError(),
        OutOfMemoryError("Task was killed due to the node running low on memory."),
        WorkerCrashedError(),
        NodeDiedError("The node is gone."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_worker_is_named_by_however_ray_tells_of_its_death(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert isinstance(error, DEAD_ACTOR_ERRORS)

    failed = told(monkeypatch, Scenario((0, "fine"), (1, error), dead={1: error}))

    cause = cause_of(failed, step=7, log_tail={})
    assert (failed.how, cause["side"], cause["role"], cause["rank"]) == ("died", "cluster", "policy", 1)
    assert "died at step 7" in cause["text"]


@pytest.mark.parametrize(
    "error",
    [
        ActorUnavailableError("The actor is temporarily unavailable", None),
        ObjectLostError(REFERENCE, None, ""),
        OwnerDiedError(REFERENCE, None, ""),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_answer_that_is_lost_names_who_is_dead_or_who_owed_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    behind = told(monkeypatch, Scenario((0, error), dead={1: RayActorError(error_msg=KILLED)}))
    alone = told(monkeypatch, Scenario((0, error)))

    assert (behind.rank, behind.how) == (1, "died")
    assert (alone.rank, alone.how) == (0, "lost")
    assert cause_of(alone, step=7, log_tail={})["side"] == "cluster"


def test_a_worker_that_cannot_be_reached_is_asked_again_until_its_death_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unavailable = ActorUnavailableError("The actor is temporarily unavailable", None)
    scenario = Scenario((1, unavailable))
    answers = iter([unavailable, unavailable])
    scenario.dead = DeadAfter(answers, RayActorError(error_msg=KILLED))

    failed = told(monkeypatch, scenario)

    assert (failed.rank, failed.how, failed.text) == (1, "died", SIGNALLED)


class DeadAfter(dict[int, Exception]):
    """What Ray says of rank 1: first these answers, then that it is dead."""

    def __init__(self, first: Any, then: Exception) -> None:
        super().__init__()
        self.first, self.then = first, then

    def get(self, rank: int, default: Any = None) -> Any:
        """Return the next answer of rank 1; the others are there."""
        return next(self.first, self.then) if rank == 1 else default


def test_who_dies_before_it_has_told_its_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    died = RayActorError(error_msg=KILLED)
    workers = workers_of(monkeypatch, Scenario((0, died), dead={0: died}), num_ranks=1)

    with pytest.raises(WorkerFailed) as caught:
        workers.address_of(workers.policies[0])

    assert cause_of(caught.value, step=0, log_tail={})["role"] == "policy"


@pytest.mark.parametrize(
    "error",
    [
        LocalRayletDiedError(),
        ConnectionError("no route"),
        MemoryError(),
        KeyError("a consequence"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_driver_is_never_blamed_for_who_died(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    session = object.__new__(Session)
    session._loop = None
    session._workers = workers_of(monkeypatch, Scenario(dead={1: RayActorError(error_msg=KILLED)}))
    behind = cause_of(session.behind(error), step=0, log_tail={})
    session._workers = workers_of(monkeypatch, Scenario())
    own = cause_of(session.behind(error), step=0, log_tail={})

    assert (behind["side"], behind["role"], behind["rank"]) == ("cluster", "policy", 1)
    assert own["role"] == "driver"


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RewardFailed("mine.py raised", kind="raised", log_line="")]
)
def test_what_says_itself_who_is_at_fault_stands(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    session = object.__new__(Session)
    session._loop = None
    session._workers = workers_of(monkeypatch, Scenario(dead={1: RayActorError(error_msg=KILLED)}))

    assert session.behind(error) is error
