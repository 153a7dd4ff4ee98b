"""Processes that run a reward's code: completions go to whichever is free, one at a time, each with a time limit.

One process is started with the pool, and tells early that a source cannot be loaded. More are started when a batch has
kept it busy for a moment, up to the limit; all of them stay for the next batches. Which process scores a completion,
and how many there are, changes neither rewards nor their order, nor which failure is reported.
"""

import json
import selectors
import time
from collections.abc import Callable, Sequence
from typing import cast

from jobs.engine.rollouts.reward import Completion, RewardFailed, ScoringLimits
from jobs.engine.rollouts.reward_process import SHOWN_CHARS, RewardReply
from jobs.engine.rollouts.reward_worker import RewardWorker

_UP_SECONDS = 20.0  # for Python itself, which no reward is to blame for; less than a trial may take
_AGAIN_SECONDS = 300.0  # for a process that takes the place of another: it works, and the machine is busy
_PATIENCE = 6  # times the limit that a check may take which got no CPU
_GROW_SECONDS = 0.1  # that a batch keeps the processes busy before more are started
_CHECK_SECONDS = 0.5


class _Batch:
    """Completions and what has become of them.

    After a failure none behind it counts: those before it are waited for, as one of them may fail too, and the first in
    the batch's order is reported. With `keeps_failures` it stands in place of the reward, and all are scored.
    """

    def __init__(self, completions: Sequence[Completion], *, may_lose: bool, keeps_failures: bool = False) -> None:
        self.completions, self.may_lose, self.keeps_failures = completions, may_lose, keeps_failures
        self.rewards: list[float | RewardFailed | None] = [None] * len(completions)
        self.next = 0
        self._pending: set[int] = set()
        self._end = len(completions)
        self.failure: RewardFailed | None = None

    @property
    def num_waiting(self) -> int:
        """Completions that no process has."""
        return max(0, self._end - self.next)

    @property
    def is_done(self) -> bool:
        """True if nothing that counts is missing."""
        return not self.num_waiting and not any(index < self._end for index in self._pending)

    def take(self) -> int:
        """Return the index of the next completion."""
        self._pending.add(self.next)
        self.next += 1
        return self.next - 1

    def put(self, index: int, reward: float | None) -> None:
        """Keep a reward; None where the call was lost, and that is allowed."""
        self._pending.discard(index)
        self.rewards[index] = reward

    def fail(self, index: int, failure: RewardFailed) -> None:
        """Keep a failure: in its place, or if it is the first in order."""
        self._pending.discard(index)
        if self.keeps_failures:
            self.rewards[index] = failure
        elif index < self._end:
            self._end, self.failure = index, failure


class RewardPool:
    """The processes of one reward. Not to be shared by threads."""

    def __init__(self, source: str, *, file_name: str, limits: ScoringLimits) -> None:
        """Start a process and load the source in it. Raises: RewardFailed of any kind; what `limits.check` raises."""
        self._source, self._name, self._limits = source, file_name, limits
        self._most = max(1, limits.num_workers)
        self._workers: list[RewardWorker] = []
        self._has_loaded = False
        self._work(_Batch([], may_lose=False), until=lambda: any(worker.is_loaded for worker in self._workers))

    def score(
        self, completions: Sequence[Completion], *, may_lose: bool = False, keeps_failures: bool = False
    ) -> list[float | RewardFailed | None]:
        """Return the reward of each completion, in order.

        With `may_lose` a call that takes too long or ends its process has None, and a new process takes its place; else
        there is no None. Such calls wait for nothing, so the limit is CPU time: on a busy machine one may take six
        times as long, and the same ones are lost. With `keeps_failures` a completion that cannot be scored has its
        failure, and the others are scored.

        Raises: RewardFailed of kind `raised`, `wrong_type`, `hung` or `died`, or `not_started`; what `limits.check`
        raises. After that no process is left.
        """
        batch = _Batch(completions, may_lose=may_lose, keeps_failures=keeps_failures)
        self._work(batch, until=lambda: batch.is_done)
        return batch.rewards

    def close(self) -> None:
        """End all processes and whatever they started."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    @property
    def num_processes(self) -> int:
        """How many processes there are."""
        return len(self._workers)

    def _work(self, batch: _Batch, *, until: Callable[[], bool]) -> None:
        begin = checked = time.monotonic()
        try:
            while not until():
                now = time.monotonic()
                if now - checked >= _CHECK_SECONDS:
                    self._limits.check()
                    checked = now
                self._grow(batch, seconds=now - begin)
                for worker in self._workers:
                    if worker.state == "idle" and batch.num_waiting:
                        self._hand_over(worker, batch, now)
                self._wait(batch, until=min(checked + _CHECK_SECONDS, self._grows_at(batch, begin)))
            if batch.failure is not None:
                raise batch.failure
        except BaseException:
            self.close()  # what is under way belongs to this batch
            raise

    def _grow(self, batch: _Batch, *, seconds: float) -> None:
        """Start a process where there is none, and as many as are of use in a batch that has lasted so long."""
        if not self._workers:
            self._start()
        if seconds >= _GROW_SECONDS:
            num_free = sum(worker.state != "scoring" for worker in self._workers)
            for _ in range(min(self._most - len(self._workers), batch.num_waiting - num_free)):
                self._start()

    def _grows_at(self, batch: _Batch, begin: float) -> float:
        is_growing = batch.num_waiting and len(self._workers) < self._most
        return max(begin + _GROW_SECONDS, time.monotonic()) if is_growing else float("inf")

    def _start(self) -> None:
        deadline = time.monotonic() + (_AGAIN_SECONDS if self._has_loaded else _UP_SECONDS)
        self._workers.append(
            RewardWorker(self._source, file_name=self._name, deadline=deadline, limits=self._limits.file)
        )

    def _hand_over(self, worker: RewardWorker, batch: _Batch, now: float) -> None:
        index = batch.take()
        c = batch.completions[index]
        call, deadline = (c.prompt, c.completion, c.answer), now + self._limits.timeout_seconds
        worker.score(call, index=index, since=now, deadline=deadline, counts_cpu=batch.may_lose)

    def _wait(self, batch: _Batch, *, until: float) -> None:
        """Wait until a process answers or is out of time, at most `until`, and take what there is.

        Answers come before deadlines: between two batches nobody looks, and a process may have answered long ago.
        """
        deadlines = [worker.deadline for worker in self._workers if self._is_bound(worker)]
        seconds = max(0.0, min([until, *deadlines]) - time.monotonic())
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
                if worker.is_sending:
                    selector.register(worker.stdin, selectors.EVENT_WRITE, worker)
            ready = [(key.data, events) for key, events in selector.select(seconds)]
        for worker, events in ready:
            if events & selectors.EVENT_WRITE:
                worker.flush()
            elif worker in self._workers:
                self._take(worker, batch)
        now = time.monotonic()
        answered = {id(worker) for worker, _ in ready}
        for worker in list(self._workers):
            if self._is_bound(worker) and now >= worker.deadline and id(worker) not in answered:
                self._out_of_time(worker, batch)

    def _is_bound(self, worker: RewardWorker) -> bool:
        """Return whether its deadline counts: one that is only starting to help may take its time."""
        return worker.state == "scoring" or (not worker.is_loaded and not self._has_others(worker))

    def _has_others(self, worker: RewardWorker) -> bool:
        return any(other.is_loaded for other in self._workers if other is not worker)

    # -- what processes answer --

    def _take(self, worker: RewardWorker, batch: _Batch) -> None:
        lines = worker.read()
        if lines is None:
            self._ended(worker, batch)
            return
        for line in lines:
            if worker.state == "starting":
                seconds = max(self._limits.load_seconds, _AGAIN_SECONDS if self._has_loaded else 0.0)
                worker.load(deadline=time.monotonic() + seconds)
                continue
            reply = _reply(line)
            if worker.state == "idle" or reply is None or reply.get("turn") != worker.turn:
                self._fail(worker, batch, self._no_reply(worker, batch))
                return
            failure = None
            if "problem" in reply:
                failure = RewardFailed(
                    reply["problem"],
                    kind=reply["kind"],
                    log_line=reply.get("log_line", ""),
                    is_refused=reply.get("is_refused", False),
                )
            if worker.state == "loading" and failure is not None:
                self._not_loaded(worker, failure)
                return
            self._has_loaded = True
            if worker.state == "scoring" and failure is not None:
                batch.fail(worker.index, failure)
            elif worker.state == "scoring":
                batch.put(worker.index, reply["reward"])
            worker.rest()

    def _no_reply(self, worker: RewardWorker, batch: _Batch) -> RewardFailed:
        """Return the failure of a reward that disturbs what its process answers, so that no reward can be believed."""
        when = f" while scoring {self._called(worker, batch)}" if worker.state == "scoring" else ""
        text = (
            f"The reward {self._name} answered a second time, or something that is no reward{when}. Let a process that "
            "it forks end by os._exit, and let nothing else write where its answers go."
        )
        return RewardFailed(text, kind="wrong_type", log_line=worker.last_error_line())

    def _ended(self, worker: RewardWorker, batch: _Batch) -> None:
        if worker.state == "starting":
            text, kind = f"The process for the reward {self._name} ended while it started.", "not_started"
        elif worker.state == "loading":
            text, kind = f"The reward {self._name} ended its process while it was loaded.", "died"
        elif worker.state == "idle":
            text, kind = f"The reward {self._name} ended its process between two completions.", "died"
        else:
            text = f"The reward {self._name} ended its process while scoring {self._called(worker, batch)}."
            kind = "died"
        self._fail(worker, batch, RewardFailed(text, kind=kind, log_line=worker.last_error_line()))

    def _out_of_time(self, worker: RewardWorker, batch: _Batch) -> None:
        limits = self._limits
        if worker.state == "starting":
            text = f"The process for the reward {self._name} did not start within {_UP_SECONDS:g} s. Try again."
            self._not_loaded(worker, RewardFailed(text, kind="not_started"))
            return
        if batch.may_lose and worker.state == "scoring" and (seconds := self._seconds_left(worker)):
            worker.deadline = time.monotonic() + seconds
            return
        where = "" if batch.may_lose else worker.where()
        at = f", at {where}" if where else ""
        if worker.state == "loading":
            text = f"The reward {self._name} was not loaded within {limits.load_seconds:g} s{at}. Make it load faster."
            self._not_loaded(worker, RewardFailed(text, kind="hung", log_line=where))
            return
        text = (
            f"The reward {self._name} did not score {self._called(worker, batch)} within "
            f"{limits.timeout_seconds:g} s ({limits.timeout_name}){at}. Make it return faster."
        )
        self._lost(worker, batch, RewardFailed(text, kind="hung", log_line=where))

    def _seconds_left(self, worker: RewardWorker) -> float:
        """Return for how long a call may go on that has got less CPU time than its limit; 0 where it has had enough."""
        limit = self._limits.timeout_seconds
        if time.monotonic() >= worker.since + _PATIENCE * limit:
            return 0.0
        left = limit - worker.cpu_seconds()
        return max(left, _CHECK_SECONDS) if left > limit / 10 else 0.0

    @staticmethod
    def _called(worker: RewardWorker, batch: _Batch) -> str:
        """Return how people are told of the completion that a process has."""
        c = batch.completions[worker.index]
        begins = f"prompt {c.prompt[:SHOWN_CHARS]!r}, completion {c.completion[:SHOWN_CHARS]!r}"
        return f"completion {worker.index + 1} of {len(batch.completions)} ({begins})"

    def _fail(self, worker: RewardWorker, batch: _Batch, failure: RewardFailed) -> None:
        """End a process that went wrong, whatever it was doing."""
        if worker.is_loaded:
            self._lost(worker, batch, failure)
        else:
            self._not_loaded(worker, failure)

    def _lost(self, worker: RewardWorker, batch: _Batch, failure: RewardFailed) -> None:
        """End a process, and keep what has become of its completion."""
        self._remove(worker)
        if worker.state == "idle" and not (batch.may_lose or batch.keeps_failures):
            raise failure
        if worker.state == "scoring" and batch.may_lose:
            batch.put(worker.index, None)
        elif worker.state == "scoring":
            batch.fail(worker.index, failure)

    def _not_loaded(self, worker: RewardWorker, failure: RewardFailed) -> None:
        """End a process that cannot load the source. What others can load goes on with those."""
        self._remove(worker)
        if not any(other.is_loaded for other in self._workers):
            raise failure
        self._most = len(self._workers)
        print(f"Scoring goes on in fewer processes, {self._most}: {failure}", flush=True)

    def _remove(self, worker: RewardWorker) -> None:
        self._workers.remove(worker)
        worker.close()


def _reply(line: bytes) -> RewardReply | None:
    """Return the reply that a line is, None if it is none."""
    try:
        reply = json.loads(line)
    except ValueError:
        return None
    return cast(RewardReply, reply) if isinstance(reply, dict) else None
