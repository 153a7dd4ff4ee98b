"""One running service: its process, its log, and when it may be started again."""

import math
import os
import signal
import subprocess
from pathlib import Path

from console.embedded.process_tree import die_with_parent
from console.embedded.service import Service

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 10.0
HEALTHY_SECONDS = 60.0  # after this long an exit counts as the first one again


class Child:
    """A service and the process that it is now. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, service: Service, log_path: Path) -> None:
        self.service = service
        self.log_path = log_path
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_again_at = 0.0
        self.num_exits = 0  # since it was last healthy
        self.is_ready = False

    @property
    def pid(self) -> int | None:
        """The process id, or None if it is not running."""
        return self.process.pid if self.process else None

    def start(self, now: float) -> None:
        """Start the process in a group of its own, so that the terminal's Ctrl-C reaches the supervisor alone."""
        supervisor = os.getpid()
        death_signal = self.service.death_signal
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.service.argv,
                env=dict(self.service.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=lambda: die_with_parent(death_signal, supervisor),
            )
        self.started_at = now
        self.is_ready = False

    def check_ready(self) -> bool:
        """Return whether it is ready, asking only until the first yes of each process."""
        if self.process and not self.is_ready:
            self.is_ready = self.service.is_ready()
        return self.is_ready

    def check_exit(self, now: float) -> int | None:
        """Return the exit code if the process has just ended, and set the time of its next start."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.kill_group()
        self.process = None
        self.is_ready = False
        if self.service.is_once:
            self.start_again_at = math.inf
            return code
        if now - self.started_at > HEALTHY_SECONDS:
            self.num_exits = 0
        self.start_again_at = now + min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**self.num_exits)
        self.num_exits += 1
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill_group(self) -> None:
        """End what is left of its process group."""
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return
