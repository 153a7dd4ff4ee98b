"""`python -m jobs.runner`: the entrypoint of a run's Ray job. It reads its orders from the PITWALL_ variables."""

import os
import sys

from jobs.runner.console_client.console import Console
from jobs.runner.console_client.runner_job import EnvironmentIncomplete, read_job
from jobs.runner.supervisor import EXIT_FAULT, AttemptSupervisor, obey_signals


def main() -> int:
    """Supervise one attempt; return the exit code."""
    try:
        job = read_job(os.environ)
    except EnvironmentIncomplete as error:
        print(error, file=sys.stderr)
        return EXIT_FAULT
    console = Console(job)
    supervisor = AttemptSupervisor(job, console)
    obey_signals(supervisor)
    try:
        return supervisor.run()
    except OSError as error:
        print(f"The run directory {job.run_dir} cannot be used: {error}", file=sys.stderr)
        return EXIT_FAULT
    finally:
        console.close()


if __name__ == "__main__":
    sys.exit(main())
