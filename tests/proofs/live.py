"""`make proof-live`: the live path under load, held against its bounds; writes docs/proofs/live.md.

For each database and load: a runner's side ships points through the real ingest endpoint, websocket clients follow,
some of them come and go, some read slowly, and ingest is killed half-way and started again a second later, as a
supervisor does. Every viewer's frames are checked by number and by point. A point is late by received minus emitted on
the one clock of this machine; travels that touched the outage, what was emitted while a viewer was away, and viewers
that read slowly do not count into the percentiles. The exit code is 1 if a bound was missed.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tests.bench.stage import ROOT
from tests.proofs.live_points import SERIES
from tests.proofs.live_stage import Console, Runner, console, durable_rate, points_stored, until_it_answers
from tests.proofs.live_viewers import SLOW_SECONDS

REPORT = ROOT / "docs" / "proofs" / "live.md"
SECONDS = 30.0
WARM_UP_SECONDS = 3.0
RESPAWN_SECONDS = 1.0
P95_MS = 300.0
DURABLE_POINTS = 50_000
BATCHES, EVENTS = 100, 500  # of the durable rate: a million points
REPEAT = 3
SEED = 20261120


@dataclass(frozen=True, slots=True)
class Load:
    """Points a second, and how many viewers there are; of these, how many come and go, and how many read slowly."""

    rate: int
    viewers: int
    flapping: int
    slow: int


LOADS = (Load(1_000, 50, 10, 0), Load(10_000, 50, 10, 2), Load(20_000, 500, 20, 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one case showed. Delays in ms; `outage` in seconds from the kill until what had waited was durable."""

    database: str
    load: Load
    emitted: int
    seconds: float
    connections: int
    gaps: int
    duplicates: int
    wrong: int
    stored: int
    outage: float
    delays: dict[str, float]
    flapping_delays: dict[str, float]
    busy: float  # the load average before
    cores: dict[str, float]  # that web, viewers and the runner's side took while it was measured
    problems: tuple[str, ...]

    def failed(self, *, p95_ms: float | None = P95_MS) -> list[str]:
        """Return the bounds that were missed."""
        found = [f"{n} {what}" for what, n in (("gaps", self.gaps), ("duplicates", self.duplicates)) if n]
        found += [f"{self.wrong} wrong points"] if self.wrong else []
        if self.stored != self.emitted:
            found.append(f"{self.stored:,} points are in the database, {self.emitted:,} were emitted")
        if p95_ms is not None and not self.delays.get("p95", float("inf")) <= p95_ms:
            found.append(f"p95 is {self.delays.get('p95', float('nan')):.0f} ms, not at most {p95_ms:.0f} ms")
        return [*found, *self.problems]


async def play(stage: Console, *, database: str, load: Load, seconds: float) -> Case:
    """Run one case on a console that is up."""
    made = await asyncio.to_thread(stage.make_run)
    runner = Runner(console=stage, made=made, rate=load.rate)
    busy = os.getloadavg()[0]
    audience = subprocess.Popen(
        [sys.executable, "-m", "tests.proofs.live_viewers"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        about = {"run": made["run"], "cookie": made["cookie"], "seed": SEED}
        await _order(audience, {"host": stage.host, **about, **asdict(load)})
        assert (await _answer(audience))["ready"]
        working = [asyncio.create_task(runner.emit()), asyncio.create_task(runner.ship())]
        await asyncio.sleep(min(WARM_UP_SECONDS, seconds / 4))  # what starts up late is not the subject
        begin = time.time_ns()
        cpu = _cpu_seconds(stage, audience)
        await asyncio.sleep(seconds / 2)
        killed, recovered = await _outage(stage, runner)
        await asyncio.sleep(seconds / 2)
        cores = {
            name: (now - cpu[name]) / (time.time_ns() - begin) * 1e9
            for name, now in _cpu_seconds(stage, audience).items()
        }
        runner.over.set()
        await asyncio.gather(*working)
        await _order(audience, {"last": runner.batch, "begin": begin, "killed": killed, "recovered": recovered})
        seen = await _answer(audience)
    finally:
        audience.kill()
        audience.wait()
    stored = await points_stored(stage, made)
    problems = list(seen["problems"])
    emitted = runner.step * SERIES
    if (seen["points_least"], seen["points_most"]) != (emitted, emitted):
        problems.append(f"viewers got {seen['points_least']:,} to {seen['points_most']:,} of {emitted:,} points")
    if seen["resets"]:
        problems.append(f"{seen['resets']} viewers were told to load the page's series again")
    return Case(
        database=database,
        load=load,
        emitted=emitted,
        seconds=seconds,
        connections=seen["connections"],
        gaps=seen["gaps"],
        duplicates=seen["duplicates"],
        wrong=seen["wrong"],
        stored=sum(stored),
        outage=(recovered - killed) / 1e9,
        delays=seen["all"],
        flapping_delays=seen["flapping"],
        busy=busy,
        cores=cores,
        problems=tuple(problems),
    )


def _cpu_seconds(stage: Console, audience: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return the seconds of CPU that each process took since its start; ingest is left out, as it is killed."""
    processes = {"web": stage.web.pid, "viewers": audience.pid, "runner's side": os.getpid()}
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in processes.items()}


async def _outage(stage: Console, runner: Runner) -> tuple[int, int]:
    """Kill ingest, start another; return when it was killed and when all that had waited was durable (Unix ns)."""
    killed = time.time_ns()
    await asyncio.to_thread(stage.kill_ingest)
    await asyncio.sleep(RESPAWN_SECONDS)
    stage.start_ingest()
    runner.caught_up.clear()
    await asyncio.wait_for(runner.caught_up.wait(), 60)
    return killed, time.time_ns()


async def _order(process: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()


async def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    assert line, "the viewers ended early; their error stands above"
    found: dict[str, Any] = json.loads(line)
    return found


async def prove(database: str, *, port: int, given: argparse.Namespace) -> tuple[list[Case], list[float]]:
    """Return the cases of one database and its durable rates in points a second."""
    cases, rates = [], []
    with console(database, port=port) as stage:
        await until_it_answers(stage)
        for load in given.load or LOADS:
            case = await play(stage, database=database, load=load, seconds=given.seconds)
            print(_line(case), flush=True)
            cases.append(case)
        for _ in range(0 if given.short else REPEAT):
            rates.append(await durable_rate(stage, batches=BATCHES, events=EVENTS))
            print(f"{database}: durable ingest {rates[-1]:,.0f} points/s", flush=True)
    return cases, rates


def _line(case: Case) -> str:
    delays = ", ".join(
        f"{name} {case.delays[name]:.0f}" for name in ("p50", "p95", "p99", "max") if name in case.delays
    )
    load = case.load
    told = (
        f"{case.database}, {load.rate:,} points/s, {load.viewers} viewers ({load.flapping} flapping, {load.slow} slow)"
    )
    exact = f"{case.gaps} gaps, {case.duplicates} duplicates, {case.wrong} wrong"
    cores = ", ".join(f"{name} {share:.2f}" for name, share in case.cores.items())
    return f"{told}: {exact}; {delays} ms; outage {case.outage:.1f} s; load {case.busy:.1f}; cores of {cores}"


def report(cases: list[Case], rates: dict[str, list[float]]) -> str:
    """Return docs/proofs/live.md."""
    machine = f"{os.cpu_count()} cores of {_cpu_name()}, Python {sys.version.split()[0]}"
    lines = [
        "# Proof: the live path under load",
        "",
        f"`make proof-live` wrote this page on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, on {machine}; everything, load",
        "generator and viewers included, shares them. Bounds: no gap, no duplicate, p95 at most "
        f"{P95_MS:.0f} ms outside the outage, durable ingest of at least {DURABLE_POINTS:,} points/s.",
        "",
        "Websocket clients of one web process follow one run, which sends ten updates a second. Those that *flap* stay",
        "for 0.5 to 3 s, leave (half of them without a goodbye) and come back with `after=` the last frame they saw;",
        f"those that are *slow* take {SLOW_SECONDS:.0f} s over each message, and get the rest at the end. After half",
        f"the time ingest is killed with SIGKILL and started again {RESPAWN_SECONDS:.0f} s later. A point is a value",
        "of one series at one step; its value follows from both, and every viewer's frames are checked by number and",
        "by value. Delay is received minus emitted, of all but the slow viewers, the wait for the runner's 100 ms",
        "window included, in milliseconds. *Cores*: what the web process takes, and what viewers and the runner's side",
        "take from it on the same machine.",
        "",
        "| database | points/s | viewers (flapping, slow) | emitted | gaps | duplicates | wrong | p50 | p95 | p99 "
        "| largest "
        "| p95, flapping | connections | outage | in the database | cores: web, viewers, runner's side | load before |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        delays = " | ".join(f"{case.delays[name]:.0f}" for name in ("p50", "p95", "p99", "max"))
        load = case.load
        lines.append(
            f"| {NAMES[case.database]} | {load.rate:,} | {load.viewers} ({load.flapping}, {load.slow}) "
            f"| {case.emitted:,} | {case.gaps} | {case.duplicates} "
            f"| {case.wrong} | {delays} | {case.flapping_delays['p95']:.0f} | {case.connections} | {case.outage:.1f} s "
            f"| {'all' if case.stored == case.emitted else f'{case.stored:,}'} "
            f"| {', '.join(f'{share:.2f}' for share in case.cores.values())} | {case.busy:.1f} |"
        )
    lines += [
        "",
        "*Outage*: from the kill until all that had waited was in the database, the second of waiting and the start of",
        "the new process included. Nothing is lost: the console takes batches, and viewers get them afterwards.",
        "",
        f"| database | durable ingest, {REPEAT} times {BATCHES * EVENTS * SERIES:,} points from POST to commit |",
        "|---|---|",
    ]
    for database, found in rates.items():
        texts = " – ".join(f"{rate:,.0f}" for rate in (min(found), max(found)))
        lines.append(f"| {NAMES[database]} | median {median(found):,.0f} points/s ({texts}) |")
    return "\n".join([*lines, ""])


NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def _cpu_name() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else "an unknown CPU"


def _load(text: str) -> Load:
    return Load(*map(int, text.split(",")))


def main() -> None:
    """Prove every case, print them, write the report unless it is the short one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgres"], choices=list(NAMES))
    parser.add_argument("--load", action="append", type=_load, help="RATE,VIEWERS,FLAPPING,SLOW; may be given again")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--port", type=int, default=18310)
    parser.add_argument("--short", action="store_true", help="no report, no bound on the delay, no durable rate")
    given = parser.parse_args()
    cases: list[Case] = []
    rates: dict[str, list[float]] = {}
    for database in given.databases:
        found, durable = asyncio.run(prove(database, port=given.port, given=given))
        cases += found
        rates[database] = durable
    failed = [f"{_line(c)}: {problem}" for c in cases for problem in c.failed(p95_ms=None if given.short else P95_MS)]
    failed += [
        f"{database}: durable ingest is {min(found):,.0f} points/s, not at least {DURABLE_POINTS:,}"
        for database, found in rates.items()
        if found and min(found) < DURABLE_POINTS
    ]
    print(json.dumps([asdict(case) for case in cases]))
    if not given.short:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(report(cases, rates), encoding="utf-8")
    if failed:
        sys.exit("Missed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
