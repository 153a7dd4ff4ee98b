"""`make proof-backup`: backups taken while ingest stores points, restored elsewhere, equal up to their moment.

For each database: a runner's side ships points through the real ingest endpoint. Meanwhile `manage.py backup` runs,
several times, the later ones linked to the first. Each backup is then restored by `manage.py restore` into an empty
data directory and database, and every point of every series in it is held against the source: as many as the number
of batches that the manifest calls durable, equal in x and y. How long ingest stood still meanwhile is measured too. The
exit code is 1 if anything differs. Writes docs/proofs/backup.md.
"""

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.stage import ROOT
from tests.proofs.live_points import NAMES, SERIES
from tests.proofs.live_stage import Console, Runner, console, until_it_answers

REPORT = ROOT / "docs" / "proofs" / "backup.md"
RATE = 2_000  # points a second
BETWEEN_SECONDS = 6.0
BACKUPS = 3
LONGEST_STANDSTILL = 2.0  # seconds in which nothing became durable while a backup was taken
FILES, FILE_BYTES = 40, 1 << 20
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one backup showed: seconds for backup and restore, the longest time without a durable batch meanwhile,
    batches and points in it, how many were emitted in all, and files that it shares with another backup.
    """

    database: str
    backup_seconds: float
    restore_seconds: float
    standstill: float
    durable_batch: int
    points: int
    emitted: int
    num_files: int
    num_linked: int
    megabytes: float
    problems: tuple[str, ...]


async def play(stage: Console, *, database: str, given: argparse.Namespace) -> list[Case]:
    """Ship points, take backups meanwhile, and restore each when all is stored."""
    made = await asyncio.to_thread(stage.make_run)
    runner = Runner(console=stage, made=made, rate=given.rate)
    _make_files(Path(stage.env["PITWALL_DATA_DIR"]))
    working = [asyncio.create_task(runner.emit()), asyncio.create_task(runner.ship())]
    cases = []
    with tempfile.TemporaryDirectory(prefix="pw-backup-") as name:
        folder = Path(name)
        taken: list[tuple[Path, float, float, str]] = []
        for number in range(given.backups):
            await asyncio.sleep(given.between)
            target = folder / f"backup-{number}"
            link = ["--link-to", str(taken[0][0])] if taken else []
            taken.append((target, *await _backup(stage, runner, target, link)))
        await asyncio.sleep(given.between / 2)
        runner.over.set()
        await asyncio.gather(*working)
        whole = _read(stage.env, made["run"])
        for number, (target, seconds, standstill, _said) in enumerate(taken):
            env = _elsewhere(stage.env, folder / f"restored-{number}", f"restored_{number}")
            began = time.perf_counter()
            _manage(env, "restore", str(target))
            restored = time.perf_counter() - began
            cases.append(
                _judge(
                    target,
                    _read(env, made["run"]),
                    whole,
                    database=database,
                    seconds=(seconds, restored, standstill),
                    emitted=runner.step * SERIES,
                )
            )
            print(_line(cases[-1]), flush=True)
    return cases


async def _backup(stage: Console, runner: Runner, target: Path, link: list[str]) -> tuple[float, float, str]:
    """Take a backup; return how long it took, the longest time in which nothing became durable, and what it said."""
    longest, seen, since = 0.0, runner.durable_through, time.perf_counter()
    began = since
    taking = asyncio.create_task(asyncio.to_thread(_manage, stage.env, "backup", str(target), *link))
    while not taking.done():
        await asyncio.sleep(0.02)
        now = time.perf_counter()
        if runner.durable_through != seen:
            seen, since = runner.durable_through, now
        longest = max(longest, now - since)
    return time.perf_counter() - began, longest, taking.result()


def _judge(
    target: Path,
    restored: dict[str, Any],
    whole: dict[str, Any],
    *,
    database: str,
    seconds: tuple[float, float, float],
    emitted: int,
) -> Case:
    manifest = json.loads((target / "manifest.json").read_text())
    problems = []
    durable = next(each["durable_batch"] for each in manifest["live"])
    steps = sum(whole["steps_of_batch"][:durable])
    for name in NAMES:
        if restored["x"][name] != whole["x"][name][:steps] or restored["y"][name] != whole["y"][name][:steps]:
            problems.append(f"{name} differs from the source up to batch {durable}")
    if restored["frames"] != whole["frames"][:durable]:
        problems.append("frames differ from those of the source")
    if len(whole["frames"]) <= durable:
        problems.append("nothing came after the backup: it was not taken under load")
    if whole["emitted"] * SERIES != emitted:
        problems.append(f"the source has {whole['emitted'] * SERIES:,} points, {emitted:,} were emitted")
    if restored["files"] != whole["files"]:
        problems.append("files differ from those of the source")
    if seconds[2] > LONGEST_STANDSTILL:
        problems.append(f"nothing became durable for {seconds[2]:.1f} s while the backup was taken")
    linked = sum((target / name).stat().st_nlink > 1 for name in manifest["files"])
    return Case(
        database=database,
        backup_seconds=seconds[0],
        restore_seconds=seconds[1],
        standstill=seconds[2],
        durable_batch=durable,
        points=steps * SERIES,
        emitted=emitted,
        num_files=len(manifest["files"]),
        num_linked=linked,
        megabytes=sum(each["size"] for each in manifest["files"].values()) / (1 << 20),
        problems=tuple(problems),
    )


def _make_files(data_dir: Path) -> None:
    """Give the console files that do not change, as those of runs are."""
    folder = data_dir / "files" / "uploads"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        (folder / f"{number:064d}").write_bytes(os.urandom(FILE_BYTES))


def _elsewhere(env: dict[str, str], data_dir: Path, name: str) -> dict[str, str]:
    """Return the environment of another console with nothing in it, on the same kind of database."""
    other = {**env, "PITWALL_DATA_DIR": str(data_dir)}
    url = env.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        other.pop("DATABASE_URL", None)
        return other
    folder = url.removeprefix("postgres://postgres@/").rpartition("/")[0]
    argv = ["psql", "-h", f"/{folder.lstrip('/')}", "-U", "postgres", "-q", "-c", f"CREATE DATABASE {name}"]
    subprocess.run(argv, check=True)
    return {**other, "DATABASE_URL": f"{url.rpartition('/')[0]}/{name}"}


def _manage(env: dict[str, str], *arguments: str) -> str:
    argv = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments[0]}: {done.stdout}{done.stderr}"
    return done.stdout


def _read(env: dict[str, str], run: str) -> dict[str, Any]:
    """Return what a console has of a run, read by another process."""
    argv = [sys.executable, "-m", "tests.proofs.backup", "--read", run]
    done = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read(run: str) -> dict[str, Any]:
    """Return every point of every series as the console reads it for charts, digests of the frames, and of the files;
    sets Django up.
    """
    import django

    django.setup()
    from django.conf import settings

    from jobs.models import Frame
    from jobs.telemetry.frames import decode_frame
    from jobs.telemetry.series import MAX_POINTS, read_series

    answer = read_series(run_id=run, names=list(NAMES), num_points=MAX_POINTS)
    series = {each.name: each for each in answer.series}
    assert all(len(each.x) == each.of for each in answer.series), "emit less: not every point is read"
    frames, steps = [], []
    for payload in Frame.objects.filter(run=run).order_by("seq").values_list("payload", flat=True):
        frames.append(hashlib.sha256(payload).hexdigest())
        steps.append(len({step for lane in decode_frame(payload)["metrics"] for step in lane["steps"]}))
    home = Path(settings.FILES_DIR)
    kept = [path for path in home.rglob("*") if path.is_file()]
    files = {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
    return {
        "x": {name: [int(x) for x in series[name].x] for name in NAMES},
        "y": {name: [float(y) for y in series[name].y] for name in NAMES},
        "frames": frames,
        "steps_of_batch": steps,
        "emitted": sum(steps),
        "files": files,
    }


def _line(case: Case) -> str:
    told = f"{case.database}: {case.points:,} of {case.emitted:,} points, batch {case.durable_batch}"
    times = f"backup {case.backup_seconds:.1f} s, longest standstill {case.standstill:.2f} s"
    return f"{told}; {times}, restore {case.restore_seconds:.1f} s; {'; '.join(case.problems) or 'equal'}"


def report(cases: list[Case], *, given: argparse.Namespace) -> str:
    """Return docs/proofs/backup.md."""
    lines = [
        "# Proof: backups under load",
        "",
        f"`make proof-backup` wrote this page on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, on {os.cpu_count()} cores",
        f"that everything shares. A run reports {given.rate:,} points a second in {SERIES} series while",
        f"`manage.py backup` runs, {given.backups} times; {FILES} files of 1 MiB lie beside. Each backup is restored",
        "into an empty data directory and database, and every point, frame and file in it is compared with the source.",
        "",
        "| database | points in it | of | series, frames, files | backup | longest standstill | restore | size "
        "| shared with another backup |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        verdict = "; ".join(case.problems) or "equal"
        times = f"{case.backup_seconds:.1f} s | {case.standstill:.2f} s | {case.restore_seconds:.1f} s"
        size = f"{case.megabytes:,.0f} MiB | {case.num_linked} of {case.num_files} files"
        name = DATABASES[case.database]
        lines.append(f"| {name} | {case.points:,} | {case.emitted:,} | {verdict} | {times} | {size} |")
    lines += [
        "",
        "*Of*: the points emitted until the end, so what is missing came after the backup's moment. *Longest",
        "standstill*: the longest time in which no batch became durable while a backup was taken; a batch is shipped",
        "every 100 ms. The start of the command's process, about a second of a core, is part of each time.",
        "",
        "A run that was live at the backup goes on with the restored console: its runner is told which batch is",
        "expected and sends all from there on again (`tests/jobs/runner/test_with_console.py`, with a real runner).",
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Prove both databases, print the cases, write the report unless it is the short one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", nargs="+", default=list(DATABASES), choices=list(DATABASES))
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--backups", type=int, default=BACKUPS)
    parser.add_argument("--between", type=float, default=BETWEEN_SECONDS, help="seconds between two")
    parser.add_argument("--port", type=int, default=18360)
    parser.add_argument("--short", action="store_true", help="no report")
    parser.add_argument("--read", metavar="RUN", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        print(json.dumps(read(given.read)))
        return
    cases: list[Case] = []
    for database in given.databases:
        cases += asyncio.run(_prove(database, given))
    if not given.short:
        REPORT.write_text(report(cases, given=given), encoding="utf-8")
    failed = [f"{case.database}: {problem}" for case in cases for problem in case.problems]
    if failed:
        sys.exit("Missed:\n" + "\n".join(failed))


async def _prove(database: str, given: argparse.Namespace) -> list[Case]:
    with console(database, port=given.port) as stage:
        await until_it_answers(stage)
        return await play(stage, database=database, given=given)


if __name__ == "__main__":
    main()
