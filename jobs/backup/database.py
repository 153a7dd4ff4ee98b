"""The database of a backup: one consistent moment of it, taken while others write, and put back.

SQLite is copied by its own backup call in a single step, which reads one snapshot of the write-ahead log and keeps no
writer waiting. PostgreSQL is dumped by pg_dump from an exported snapshot, in which the manifest is read, too.
"""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection, transaction

from jobs.backup.problem import BackupRefused

SQLITE_NAME, POSTGRES_NAME = "database.sqlite3", "database.dump"
COMMAND_LEAP = 1_000_000  # see `skip_command_numbers`
_LIVE = """
SELECT a.run_id, a.number, a.state, a.durable_batch FROM jobs_attempt a
WHERE a.state IN ('queued', 'starting', 'running', 'stopping') ORDER BY a.run_id, a.number
"""
_APPLIED = (
    "SELECT app, name FROM django_migrations WHERE app IN ('jobs', 'auth', 'axes', 'sessions') ORDER BY app, name"
)

_READY = "SELECT run_id, attempt, id FROM jobs_artifact WHERE is_ready ORDER BY id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the copied database says of itself: migrations (`app.name`), attempts that had not ended by then, and the
    files of runs that were whole, as (run, attempt, number).
    """

    migrations: tuple[str, ...]
    live: tuple[Mapping[str, Any], ...]
    ready: tuple[tuple[str, int, int], ...]


def name_here() -> str:
    """Return the name of the database's file in a backup of this console."""
    return name_of(connection.vendor)


def name_of(vendor: str) -> str:
    """Return the name that the file of a database of this kind has in a backup."""
    return SQLITE_NAME if vendor == "sqlite" else POSTGRES_NAME


def dump(target: Path) -> Moment:
    """Write the database as it is at one moment to `target`. Raises: BackupRefused."""
    return _dump_sqlite(target) if connection.vendor == "sqlite" else _dump_postgres(target)


def load(source: Path) -> None:
    """Replace the database by the one in `source`. Raises: BackupRefused."""
    if connection.vendor == "sqlite":
        _load_sqlite(source)
    else:
        _load_postgres(source)


def is_empty() -> bool:
    """Return True if the database holds no account, no project and no run; one without tables is empty, too."""
    tables = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for table in ("jobs_run", "jobs_project", "auth_user"):
            if table in tables:
                cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - names of our own
                if cursor.fetchone():
                    return False
    return True


def require_unused() -> None:
    """Refuse to replace a PostgreSQL database that others are connected to. Raises: BackupRefused."""
    if connection.vendor == "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        others = cursor.fetchone()[0]
    if others:
        text = f"{others} other connections use the database. Stop the console's services, then restore."
        raise BackupRefused(text)


def skip_command_numbers() -> None:
    """Let commands go on with numbers that no runner has seen.

    Runners know commands by number and answer each once. Runs that were live at the backup may have answered commands
    that this database never heard of, so the next one must not bear such a number.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT COALESCE(MAX(id), 0) FROM jobs_command")
        number = cursor.fetchone()[0] + COMMAND_LEAP
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs_command'")
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs_command', %s)", [number])
        else:
            cursor.execute("SELECT setval(pg_get_serial_sequence('jobs_command', 'id'), %s)", [number])


# ---- SQLite


def _dump_sqlite(target: Path) -> Moment:
    with closing(sqlite3.connect(target)) as copy:
        with closing(sqlite3.connect(f"file:{_sqlite_path()}?mode=rw", uri=True, timeout=60)) as source:
            source.backup(copy, pages=-1)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, whole in itself
        broken = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
        if broken != "ok":
            raise BackupRefused(f"The copy of the database is damaged: {broken}")
        return _moment(lambda query: copy.execute(query).fetchall())


def _load_sqlite(source: Path) -> None:
    path = _sqlite_path()
    connection.close()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".restoring")
    shutil.copyfile(source, draft)
    draft.chmod(0o600)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    draft.replace(path)


def _sqlite_path() -> Path:
    return Path(str(connection.settings_dict["NAME"]))


# ---- PostgreSQL


def _dump_postgres(target: Path) -> Moment:
    program = _program("pg_dump")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        snapshot = cursor.fetchone()[0]

        def ask(query: str) -> list[Any]:
            cursor.execute(query)
            rows: list[Any] = cursor.fetchall()
            return rows

        moment = _moment(ask)
        options = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={target}"]
        _call([program, *options, *_where()])
    return moment


def _load_postgres(source: Path) -> None:
    program = _program("pg_restore")
    connection.close()
    options = ["--no-owner", "--no-privileges", "--clean", "--if-exists", "--single-transaction", "--exit-on-error"]
    _call([program, *options, *_where(), str(source)])


def _program(name: str) -> str:
    """Return the path of a program of PostgreSQL that is at least as new as the server. Raises: BackupRefused."""
    path = shutil.which(name)
    if path is None:
        raise BackupRefused(f"{name} is not on the path. Install PostgreSQL's client programs.")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\b(\d+)(?:\.\d+)?", said)
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        server = int(cursor.fetchone()[0]) // 10_000
    if version is None or int(version[1]) < server:
        raise BackupRefused(
            f"{path} is of version {said.strip() or 'unknown'}, the server is {server}. Install {server}."
        )
    return path


def _where() -> list[str]:
    """Return where the database is, for a program of PostgreSQL; the password goes by the environment."""
    config = connection.settings_dict
    parts = {"--host": config["HOST"], "--port": config["PORT"], "--username": config["USER"]}
    named = [f"{name}={value}" for name, value in parts.items() if value]
    return [*named, "--no-password", f"--dbname={config['NAME']}"]


def _call(argv: list[str]) -> None:
    password = str(connection.settings_dict.get("PASSWORD") or "")
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {})}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BackupRefused(f"{Path(argv[0]).name} failed: {last}")


def _moment(ask: Callable[[str], list[Any]]) -> Moment:
    names = ("run", "attempt", "state", "durable_batch")
    return Moment(
        migrations=tuple(f"{app}.{name}" for app, name in ask(_APPLIED)),
        live=tuple(dict(zip(names, row, strict=True)) for row in ask(_LIVE)),
        ready=tuple((run, attempt, number) for run, attempt, number in ask(_READY)),
    )
