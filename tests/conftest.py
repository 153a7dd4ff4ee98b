"""What all tests share: which Chromium is driven, and what may be skipped."""

import functools
import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.db import connection
from django.db.backends.base.operations import BaseDatabaseOperations
from django.utils import translation
from hypothesis.internal.conjecture import providers
from playwright.sync_api import expect

from jobs.accounts.append_only import guard_sql, unguard_sql
from tests.migrated_database import migrated_database
from tests.parts import MARKED, MARKERS, is_marked
from tests.ray_head import ray_head  # noqa: F401 (fixture)
from tests.services import _valkey_server, announcing, postgres, valkey  # noqa: F401 (fixtures)
from tests.warm_workers.workers import warm_environment  # noqa: F401 (fixture)

# Ray would start or join a cluster by itself when it is first used, in the process of the tests, and end this process
# when that cluster is gone. Whoever needs one says ray.init.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")

# An example that is slow because the machine does something else has failed nothing.
# Examples are the same in every run; `pytest --hypothesis-profile=random` looks for new ones.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("tests", derandomize=True, max_examples=40, **_PATIENT)
hypothesis.settings.register_profile("random", max_examples=200, **_PATIENT)
hypothesis.settings.load_profile("tests")

REQUIRE_ALL = os.environ.get("REQUIRE_ALL", "") not in ("", "0")
# A skip that names one of these is a failure under REQUIRE_ALL=1: the CI script has installed them.
REQUIRED = re.compile(
    r"chromium|chrome|browser|postgres|initdb|gettext|msgfmt|nsys|iproute2|prometheus|oidc-provider|axe-core",
    re.IGNORECASE,
)

_PARTS = {name for names in MARKERS.values() for name in names}

# The first draws the same pages with half the work: it has no window, no toolbar and no start page.
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",  # tests may run as root in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",
]
DOWNLOAD_SECONDS = 180
PATIENCE_SECONDS = 60.0

# What a page shows in a blink takes seconds on a machine that does other work besides; who waits longer says so.
expect.set_options(timeout=90_000)


def pytest_configure(config: pytest.Config) -> None:
    """Keep hypothesis from drawing constants out of our code: which it knows depends on what was imported so far."""
    if not config.getoption("--hypothesis-profile"):
        providers._get_local_constants = lambda: providers._local_constants  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of something that CI has installed into a failure."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if REQUIRED.search(reason):
            report.outcome = "failed"
            report.longrepr = f"REQUIRE_ALL=1 does not allow this skip: {reason}"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders, let those in a browser be the last, skip what needs a GPU where there is none."""
    for item in items:
        for marker in _markers_of_folders(item.path):
            item.add_marker(marker)
        _find_its_part(item)
        for slow in item.iter_markers("slow"):
            (reason,) = slow.args  # why it is worth its time
            item.user_properties.append(("slow", str(reason)))
    # Playwright's loop stays in its thread once a browser was there, and asyncio's tests cannot start theirs then.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
    if Path("/proc/driver/nvidia/version").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; this machine has no NVIDIA driver"))


def pytest_collection_finish() -> None:
    """Keep Python's collector from going through everything that was imported again and again: a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@functools.cache
def _markers_of_folders(path: Path) -> list[str]:
    return [MARKED[folder] for folder in path.parents if folder in MARKED]


def _find_its_part(item: pytest.Item) -> None:
    """Raises: UsageError if `make test` would not find this test by what its file says."""
    names = {marker.name for marker in item.iter_markers()} & _PARTS
    for name in names:
        if not is_marked(item.path, _text_of(item.path), [name]):
            raise pytest.UsageError(f"{item.path}: write pytest.mark.{name} into this file; tests/parts.py looks there")


@functools.cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome on PATH."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


def _download_chromium() -> str:
    """Let Playwright fetch its own browser; return why that failed, or nothing."""
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"Playwright's own download took longer than {DOWNLOAD_SECONDS} s"
    lines = (done.stderr or done.stdout).strip().splitlines()
    return (
        "" if done.returncode == 0 else f"Playwright could not download its own: {lines[-1] if lines else 'no reason'}"
    )


@pytest.fixture(autouse=True)
def _language_does_not_leak() -> Generator[None, None, None]:
    """Forget the language that a test's request has activated for this thread."""
    yield
    translation.deactivate()


@pytest.fixture(scope="session")
def django_db_keepdb(request: pytest.FixtureRequest) -> bool:
    """Let the database of the tests begin as a file that is there, and go with the data directory that it is in."""
    return connection.vendor == "sqlite" or bool(request.config.getoption("reuse_db"))


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """Put the file there: to migrate takes 3 s of a core."""
    del django_db_modify_db_settings_parallel_suffix
    if connection.vendor == "sqlite":
        shutil.copy(migrated_database(), connection.settings_dict["TEST"]["NAME"])


@pytest.fixture(scope="session", autouse=True)
def _audit_rows_go_with_the_rest() -> Generator[None, None, None]:
    """Let Django empty the tables after a test that commits: the audit's triggers refuse that, as they should."""
    flush = BaseDatabaseOperations.execute_sql_flush

    def unguarded(self: BaseDatabaseOperations, sql_list: list[str]) -> None:
        vendor = self.connection.vendor
        flush(self, [*unguard_sql(vendor), *sql_list, *guard_sql(vendor)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDatabaseOperations, "execute_sql_flush", unguarded)
        yield


@pytest.fixture(scope="session", autouse=True)
def _a_busy_machine_cuts_nothing_short() -> Generator[None, None, None]:
    """Let what a console does for so long, and goes on with later, be done at once; a test of that has its own time."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("jobs.telemetry.logs.SEARCH_SECONDS", "jobs.alerts.conditions.metrics.BUDGET_SECONDS"):
            patch.setattr(limit, PATIENCE_SECONDS)
        yield


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Return how to start Chromium: the system's, or else Playwright's own."""
    arguments = {**browser_type_launch_args, "args": CHROMIUM_ARGUMENTS}
    path = find_chromium()
    if path is None and (problem := _download_chromium()):
        pytest.skip(f"no Chromium: install the package chromium; {problem}")
    return arguments | ({"executable_path": path} if path else {})


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    """Return the size of the window and the language that the pages are made for."""
    return {**browser_context_args, "viewport": {"width": 1440, "height": 900}, "locale": "en-US"}
