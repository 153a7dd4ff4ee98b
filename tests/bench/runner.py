"""What supervising an attempt costs: the runner's CPU and memory, the way of an event to the console, and a
backlog.

    python -m tests.bench.runner

The console is the tests' small one, so the numbers are the runner's alone.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.bench.stage import Result, print_table
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole

COMMAND = "python -m tests.bench.runner"
SECONDS = 15
BACKLOG = 200_000
BUSY = f"""
end = time.time() + {SECONDS}
step = 0
while time.time() < end:
    step += 1
    metric(step)
    for rank in range(9):
        start = time.time_ns()
        log.write(events.span("rollout", start=start, duration=9, attempt=1, step=step, role="policy", rank=rank))
    time.sleep(0.02)
"""
AT_ONCE = f"""
for k in range({BACKLOG // 2000}):
    log.write(*[events.metric({{"loss": 1.0, "reward/mean": 0.5}}, attempt=1, step=k * 2000 + i) for i in range(2000)])
"""


class TimedConsole(FakeConsole):
    """Notes how old each metric is when it arrives, in seconds."""

    ages: list[float]

    def post_events(self, raw: dict[str, Any], *, is_cleanup: bool) -> tuple[int, dict[str, Any]]:
        now = time.time_ns()
        self.ages += [(now - event["t"]) / 1e9 for event in raw["events"] if event["kind"] == "metric"]
        return super().post_events(raw, is_cleanup=is_cleanup)


def supervise(folder: Path) -> list[Result]:
    """Measure one busy run."""
    console = TimedConsole(spec={})
    console.ages = []
    console.start()
    house = House(folder, console)
    house.trainer(BUSY)
    runner = house.start()
    process = psutil.Process(runner.pid)
    console.wait_for(lambda: len(console.events) > 100, 60)
    begin, before = time.monotonic(), process.cpu_times()
    console.wait_for(lambda: time.monotonic() - begin > SECONDS - 5, 60)
    after, rss = process.cpu_times(), process.memory_info().rss
    share = 100 * (after.user + after.system - before.user - before.system) / (time.monotonic() - begin)
    rate = len(console.events) / (time.monotonic() - begin)
    house.finish(runner)
    house.close()
    console.stop()
    ages = sorted(1000 * age for age in console.ages)
    middle, p95 = ages[len(ages) // 2], ages[int(len(ages) * 0.95)]
    return [
        result(f"runner, CPU of one core at {rate:,.0f} events/s", share, "%"),
        result("runner, resident memory", rss / 1e6, "MB"),
        result("event written to received by the console", middle, "ms", (ages[0], ages[-1])),
        result("the same, p95", p95, "ms"),
    ]


def catch_up(folder: Path) -> Result:
    """Measure how fast a backlog is shipped."""
    console = FakeConsole(spec={}).start()
    house = House(folder, console)
    house.trainer(AT_ONCE)
    runner = house.start()
    console.wait_for(lambda: console.num_posts > 0, 60)
    begin = time.monotonic()
    console.wait_for(lambda: len(console.events) > BACKLOG, 200)
    rate = BACKLOG / (time.monotonic() - begin)
    house.finish(runner)
    house.close()
    console.stop()
    return result(f"a backlog of {BACKLOG:,} events, the trainer writing it included", rate, "events/s")


def result(what: str, value: float, unit: str, spread: tuple[float, float] | None = None) -> Result:
    """Return one number as the table shows it."""
    return Result(what=what, median=value, spread=spread or (value, value), unit=unit, command=COMMAND)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as folder:
        print_table([*supervise(Path(folder, "busy")), catch_up(Path(folder, "late"))])


if __name__ == "__main__":
    main()
