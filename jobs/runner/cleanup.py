"""`python -m jobs.runner.cleanup`: end an attempt whose runner was killed, on the node where that was.

It ends what is left of the attempt, ships what the runner had not shipped yet, and gives the terminal event with the
clean-up report. The console may have ended the attempt meanwhile; it takes this until it has the clean-up report.
"""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from jobs.runner.console_client.console import Console
from jobs.runner.console_client.runner_job import EnvironmentIncomplete, RunnerJob, read_job
from jobs.runner.supervisor import EXIT_FAULT, AttemptSupervisor, obey_signals


def main() -> int:
    """Clean up after one attempt; return the exit code."""
    try:
        job = read_job(os.environ)
    except EnvironmentIncomplete as error:
        print(error, file=sys.stderr)
        return EXIT_FAULT
    console = Console(job, is_cleanup=True)
    try:
        if job.run_dir.is_dir():
            try:
                return _close(job, console)
            except OSError as error:
                print(f"{job.run_dir} takes no more files ({error.strerror}).", file=sys.stderr)
        # The runner sat on another node, never came so far, or has no disk left: all that can be shipped is the
        # terminal event.
        with tempfile.TemporaryDirectory(prefix="pitwall-cleanup-") as folder:
            spare = dataclasses.replace(job, run_root=Path(folder))
            spare.run_dir.mkdir(parents=True)
            return _close(spare, console)
    finally:
        console.close()


def _close(job: RunnerJob, console: Console) -> int:
    supervisor = AttemptSupervisor(job, console)
    obey_signals(supervisor)
    return supervisor.close_killed()


if __name__ == "__main__":
    sys.exit(main())
