"""The embedded console from start to stop: checks, database, static files, services, the link to sign in."""

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from console.embedded.data_dir import DataDirLock, make_private, require_space
from console.embedded.first_admin import signin_url
from console.embedded.log_tail import write_to_terminal
from console.embedded.ports import require_free
from console.embedded.services import EmbeddedServices, current_environment, embedded
from console.embedded.statics import collect_if_changed
from console.embedded.supervisor import Supervisor
from console.hardening import harden
from jobs.cluster.loopback import is_loopback
from jobs.preflight.trial_switch import start_line

RUNS_STOP_SECONDS = 25.0  # Ray gives a job 20 s between SIGTERM and SIGKILL


def run_console(*, host: str, port: int, demo: tuple[str, ...] | None) -> int:
    """Run the embedded console until a signal; return the exit code. `host`, `demo`: as in `services.embedded`.

    Raises: AlreadyRunning, PortTaken, NoRedisServer, TooLittleDisk, each with what to do, before anything was started.
    """
    harden(forgets=False)
    data_dir = Path(settings.DATA_DIR)
    make_private(data_dir)
    with _locked(data_dir) as lock:
        require_space(data_dir)
        require_free(port, host)
        plan = embedded(data_dir=data_dir, host=host, port=port, environ=current_environment(), demo=demo)
        _use(plan)
        lock.tell(plan.url)
        supervisor = Supervisor(
            plan.services,
            stop_order=plan.stop_order,
            log_dir=data_dir / "log",
            write=write_to_terminal,
            is_colored=sys.stdout.isatty(),
        )
        return supervisor.run(
            prepare=(migrate, collect),
            on_ready={"web": lambda: announce(plan.url), "ray": lambda: write_to_terminal("pitwall: Ray is ready.\n")},
            before_stop=stop_runs,
        )


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[DataDirLock]:
    lock = DataDirLock(data_dir)
    try:
        yield lock
    finally:
        lock.release()


def _use(plan: EmbeddedServices) -> None:
    """Let this process, too, talk to the services of the plan."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "REDIS_URL"):
        if name in plan.settings:
            setattr(settings, name, plan.settings[name])


def migrate() -> None:
    """Bring the database's tables up to date, if they are not."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)


def collect() -> None:
    """Bring the served static files up to date, if they are not."""
    collect_if_changed([Path(entry) for entry in settings.STATICFILES_DIRS], Path(settings.STATIC_ROOT))


def announce(url: str) -> None:
    """Print where the console is and a link that signs the first admin in; and if its cluster cannot reach it."""
    link = signin_url(url, now=datetime.now(UTC))
    write_to_terminal(f"\n  Pitwall is at {url}\n  Sign in once with {link}\n  Stop with Ctrl-C.\n\n")
    if line := start_line():
        write_to_terminal(f"pitwall: {line}\n")
    if is_loopback(settings.RUNNER_URL) and not is_loopback(settings.RAY_ADDRESS):
        write_to_terminal(
            f"pitwall: Runs on {settings.RAY_ADDRESS} report to {settings.RUNNER_URL}, where only this machine is. "
            "Start with --host 0.0.0.0 and PITWALL_PUBLIC_URL=http://<this machine>:<port>.\n"
        )


def stop_runs() -> None:
    """End the jobs on the embedded Ray while the console still listens, so that each run's terminal event arrives."""
    from jobs.cluster import ray_api as cluster
    from jobs.models import LIVE, Attempt

    if "RAY_ADDRESS" in current_environment():
        return  # somebody else's cluster: its runs go on, and report to the next start
    deadline = time.monotonic() + RUNS_STOP_SECONDS
    try:
        running = [name for name, job in cluster.list_jobs().items() if job.status not in cluster.JOB_ENDED]
        if running:
            write_to_terminal(f"pitwall: Stopping {len(running)} job(s) first; Ctrl-C again to skip.\n")
        for name in running:
            cluster.stop_job(name)
        live = Attempt.objects.filter(state__in=LIVE, submission_id__in=running)
        while live.exists() and time.monotonic() < deadline:
            time.sleep(0.25)
    except cluster.ClusterUnreachable:
        return  # then there is nothing that could be asked to end; the guard ends the processes
