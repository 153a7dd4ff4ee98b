"""Start services in order, start again what dies, and at the end stop them in order and leave nothing.

One thread, one loop: children are forked from the main thread, which their parent-death signal depends on. It knows
nothing of what the services are.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from console.embedded.child import Child
from console.embedded.log_tail import LogTail
from console.embedded.process_tree import adopt_orphans, descendants, kill_descendants
from console.embedded.service import Service

TICK_SECONDS = 0.1


class Supervisor:
    """Keeps services running until SIGINT or SIGTERM."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        stop_order: Sequence[str],
        log_dir: Path,
        write: Callable[[str], None],
        is_colored: bool,
    ) -> None:
        """Prepare; nothing starts. `stop_order` names every service once."""
        assert sorted(stop_order) == sorted(service.name for service in services)
        log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.children = {service.name: Child(service, log_dir / f"{service.name}.log") for service in services}
        self._stop_order = tuple(stop_order)
        self._write = write
        shown = {name: child.log_path for name, child in self.children.items() if not child.service.is_quiet}
        self._tail = LogTail(shown, write, is_colored=is_colored)
        self._num_stop_signals = 0
        self._is_waiting_for_runs = False

    def run(
        self,
        *,
        prepare: Sequence[Callable[[], None]] = (),
        on_ready: Mapping[str, Callable[[], None]] | None = None,
        before_stop: Callable[[], None] = lambda: None,
    ) -> int:
        """Supervise until a signal; return the exit code: 0, or 1 if a process could not be ended.

        `prepare`: done once while independent services already start; the others wait for it. `on_ready`: called once
        each, when the named service is first ready. `before_stop`: called while all services still run; it may take
        seconds and is not waited for after a second Ctrl-C.
        """
        adopt_orphans()
        previous = {
            number: signal.signal(number, self._note_signal)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        waiting = dict(on_ready or {})
        try:
            self._tick(waiting, may_start=lambda child: child.service.is_independent)
            for step in prepare:
                step()
            while not self._num_stop_signals:
                self._tick(waiting)
                time.sleep(TICK_SECONDS)
            self._say("Stopping.")
            self._end_runs(before_stop)
        finally:
            left = self._stop()
            for number, handler in previous.items():
                signal.signal(number, handler)
        if left:
            self._say(f"Could not end processes {left}.")
        return 1 if left else 0

    def _end_runs(self, before_stop: Callable[[], None]) -> None:
        self._is_waiting_for_runs = True
        try:
            before_stop()
        except InterruptedError:
            self._say("Not waiting for the runs to end.")
        except Exception as error:  # whatever goes wrong here, the services must still be stopped
            self._say(f"Could not stop the runs first: {error}")
        finally:
            self._is_waiting_for_runs = False

    def _tick(
        self, waiting: dict[str, Callable[[], None]], *, may_start: Callable[[Child], bool] = lambda _: True
    ) -> None:
        now = time.monotonic()
        for name, child in self.children.items():
            self._note_exit(child, now)
            if (
                child.process is None
                and may_start(child)
                and now >= child.start_again_at
                and self._are_ready(child.service.needs)
            ):
                child.start(now)
            if child.check_ready() and name in waiting:
                waiting.pop(name)()
        self._tail.show()

    def _are_ready(self, names: Sequence[str]) -> bool:
        return all(self.children[name].is_ready for name in names)

    def _note_exit(self, child: Child, now: float) -> None:
        code = child.check_exit(now)
        if code is None:
            return
        if not child.service.is_once:
            pause = child.start_again_at - now
            text = f"{child.service.name} ended with exit code {code}; starting it again in {pause:.1f} s."
            self._say(f"{text} Its log is {child.log_path}.")
        elif code:
            self._say(f"{child.service.name} failed with exit code {code}. Its log is {child.log_path}.")
        running = frozenset(other.pid for other in self.children.values() if other.pid)
        kill_descendants(spare=running)  # what it left behind, for example Ray's processes after its guard was killed

    def _stop(self) -> list[int]:
        """End every service in order, then whatever is left below us; return what could not be ended."""
        for name in self._stop_order:
            child = self.children[name]
            if child.process is None:
                continue
            child.terminate()
            deadline = time.monotonic() + child.service.grace_seconds
            while child.process.poll() is None and time.monotonic() < deadline and self._num_stop_signals < 3:
                self._tail.show()
                time.sleep(TICK_SECONDS / 2)
            if child.process.poll() is None:
                self._say(f"{name} did not end within {child.service.grace_seconds:.0f} s; killing it.")
            child.kill_group()
            child.process.wait()
            child.process = None
        self._tail.show()
        kill_descendants()
        return descendants(os.getpid())

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._num_stop_signals += 1
        if self._is_waiting_for_runs:
            raise InterruptedError

    def _say(self, text: str) -> None:
        self._write(f"pitwall: {text}\n")
