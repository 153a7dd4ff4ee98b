"""One supervisor per data directory, and short paths for what cannot have long ones."""

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path, without its closing zero
RAY_SOCKET_SUFFIX = "/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store.123"


_LOCK_FILE, _URL_FILE = "supervisor.pid", "console-url"


class AlreadyRunning(RuntimeError):
    """Another supervisor works in this data directory."""


class TooLittleDisk(RuntimeError):
    """Too little space is left to start."""


MIN_FREE_BYTES = 512 << 20


def require_space(data_dir: Path, *, free_bytes: int | None = None) -> None:
    """Raise TooLittleDisk if less than 512 MiB are left where the data stands (`free_bytes`; None: ask the system)."""
    free = shutil.disk_usage(data_dir).free if free_bytes is None else free_bytes
    if free < MIN_FREE_BYTES:
        raise TooLittleDisk(
            f"Only {free >> 20} MiB are free on the disk of {data_dir}; Pitwall needs {MIN_FREE_BYTES >> 20} MiB. "
            "Delete something there, or set PITWALL_DATA_DIR to a directory on another disk."
        )


def make_private(data_dir: Path) -> None:
    """Shut the directory to everybody else, and have this process and those it starts make private files only."""
    os.umask(0o077)
    if data_dir.stat().st_uid == os.getuid():
        data_dir.chmod(0o700)


class DataDirLock:
    """The right to run the embedded console in a directory; held until the process ends."""

    def __init__(self, data_dir: Path) -> None:
        """Take the lock. Raises: AlreadyRunning, naming the other process."""
        self.path = data_dir / _LOCK_FILE
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(self._file, 20).decode().strip() or "unknown"
            os.close(self._file)
            raise AlreadyRunning(
                f"Pitwall already runs in {data_dir} (process {pid}). Stop it with Ctrl-C in its terminal or "
                f"`kill {pid}`, or start a second console with another PITWALL_DATA_DIR and PORT."
            ) from None
        (data_dir / _URL_FILE).unlink(missing_ok=True)  # of a console that was killed
        os.truncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Give the directory free."""
        os.truncate(self._file, 0)
        os.close(self._file)

    def tell(self, url: str) -> None:
        """Let others learn where this console is, as long as it runs: see `running_url`."""
        (self.path.parent / _URL_FILE).write_text(url, encoding="utf-8")


def running_url(data_dir: Path) -> str | None:
    """Return the address of the console that runs in the directory; None if none does, or it has not said it yet."""
    try:
        file = os.open(data_dir / _LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        url_file = data_dir / _URL_FILE
        return url_file.read_text(encoding="utf-8").strip() or None if url_file.exists() else None
    finally:
        os.close(file)
    return None


def fits(path: Path, suffix: str = "") -> bool:
    """Return whether a unix socket can have this path."""
    return len(os.fsencode(f"{path}{suffix}")) <= MAX_SOCKET_PATH_BYTES


def short_dir(data_dir: Path, name: str, *, suffix: str) -> Path:
    """Return `data_dir/name`, or a directory of ours under the temporary one if paths in it would be too long.

    `suffix` is the longest path of a socket in it. Raises: PermissionError if the short one belongs to someone else.
    """
    wanted = data_dir / name
    if fits(wanted, suffix):
        wanted.mkdir(mode=0o700, exist_ok=True)
        return wanted
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:8]
    short = Path(tempfile.gettempdir()) / f"pw-{os.getuid()}-{digest}-{name}"
    short.mkdir(mode=0o700, exist_ok=True)
    status = short.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{short} belongs to someone else; set TMPDIR to a directory of your own.")
    short.chmod(0o700)
    inner = short / "d"  # Ray opens the directory it is given to everybody (0777): this one, inside ours
    inner.mkdir(mode=0o700, exist_ok=True)
    return inner


def empty(directory: Path) -> None:
    """Remove what stands in the directory (left by an earlier start); the directory stays."""
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
