"""Reports of Nsight Systems as it writes them: nsys itself turns them into SQLite, where it is installed."""

import subprocess
import tempfile
import time
from pathlib import Path

from profiling.launch_nsys import find_nsys, version_of_install, without_injection
from profiling.trace.formats.nsys_export import read_export
from profiling.trace.formats.sqlite_tables import MAGIC, Tables
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_MAGIC = b"NVIDIA Tegra Profiler Report"
_MOST_SECONDS = 1800.0
_LOOK_SECONDS = 0.1
_BY_HAND = "Export it where it was recorded, `nsys export -t sqlite FILE.nsys-rep`, and bring the .sqlite file."


class NsysReportReader:
    """Reads one report."""

    name = "nsys-rep"
    title = "a report of Nsight Systems"
    suffixes = (".nsys-rep",)

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Reports begin with a sentence."""
        return head.startswith(_MAGIC)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Export the report and put it into a store. Raises: Unreadable."""
        if not find_nsys():
            raise Unreadable(
                f"nsys is not installed on the console's machine, and only nsys reads its reports. {_BY_HAND}"
            )
        with tempfile.TemporaryDirectory(prefix="pitwall-export-") as folder:
            target = Path(folder) / "report.sqlite"
            _export(path, target, most=limits.unpacked)
            with target.open("rb") as file:
                is_database = file.read(len(MAGIC)) == MAGIC
            if not is_database:
                raise Unreadable(f"nsys made no database of the report. {_BY_HAND}")
            with Tables(target) as tables:
                if "StringIds" not in tables.names:
                    raise Unreadable(f"nsys broke off while it exported the report. {_BY_HAND}")
            progress(0.5)
            read_export(target, writer, progress=lambda share: progress(0.5 + share / 2), limits=limits)


def _export(source: Path, target: Path, *, most: int) -> None:
    """Run nsys on a report. It stands alone: no variable of a profiled process, an end to its time and its output."""
    link = target.with_name("report.nsys-rep")  # nsys goes by the ending
    link.symlink_to(source.absolute())
    command = [find_nsys(), "export", "-q", "true", "-t", "sqlite", "-f", "true", "-o", str(target), str(link)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env=without_injection(),
            cwd=target.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            problem = _wait(process, target, most=most)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if problem:
            raise Unreadable(f"{problem} {_BY_HAND}")
        output.seek(0)
        words = " ".join(output.read(4000).decode(errors="replace").split())[:300]
    if process.returncode or not target.exists():
        raise Unreadable(
            f"{version_of_install() or 'nsys'} cannot read the report: {words or f'exit code {process.returncode}'}. "
            f"A report needs an nsys of its own version or a newer one. {_BY_HAND}"
        )


def _wait(process: "subprocess.Popen[bytes]", target: Path, *, most: int) -> str:
    """Wait for the end of an export and return why it was ended early, if so."""
    until = time.monotonic() + _MOST_SECONDS
    while True:
        try:
            process.wait(_LOOK_SECONDS)
            return ""
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                return f"nsys did not export the report within {_MOST_SECONDS / 60:.0f} minutes."
            if target.exists() and target.stat().st_size > most:
                return f"The report holds more than {most / (1 << 30):,.0f} GiB, which is the most."


PLUGIN = NsysReportReader()
