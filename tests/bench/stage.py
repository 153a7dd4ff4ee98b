"""A throw-away console for a benchmark: own data directory, database, Valkey; and how a result is printed."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.migrated_database import put_database

ROOT = Path(__file__).resolve().parents[2]
COLLECT = "PITWALL_BENCH_COLLECT"  # names the file that gathers every result


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measured number; `spread` are its smallest and largest value over the repetitions."""

    what: str
    median: float
    spread: tuple[float, float]
    unit: str
    command: str


def measure(function: Callable[[], float], *, times: int) -> tuple[float, tuple[float, float]]:
    """Return the median and the extremes of what `function` returns, after one call that does not count."""
    function()
    values = [function() for _ in range(times)]
    return statistics.median(values), (min(values), max(values))


def seconds(function: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def print_table(results: Sequence[Result]) -> None:
    """Print one line a number; also append them to the file that the environment names, for `make bench`."""
    if collected := os.environ.get(COLLECT):
        with Path(collected).open("a") as file:
            file.writelines(json.dumps(asdict(result)) + "\n" for result in results)
    rows = [("what", "median", "min – max", "command")]
    rows += [
        (r.what, f"{_short(r.median)} {r.unit}", f"{_short(r.spread[0])} – {_short(r.spread[1])}", r.command)
        for r in results
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print(f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}", flush=True)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@contextmanager
def environment(*, database_url: str = "", redis_url: str = "") -> Iterator[dict[str, str]]:
    """Yield the environment of a console of its own, with a migrated database."""
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as folder:
        env = {**os.environ, "PITWALL_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "console.settings"}
        env |= {"PITWALL_LOG_LEVEL": "WARNING", "REDIS_URL": redis_url or f"unix://{folder}/none.sock"}
        env.pop("DATABASE_URL", None)
        if database_url:
            env["DATABASE_URL"] = database_url
            subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=env, check=True)
        else:
            put_database(Path(folder))
        yield env
