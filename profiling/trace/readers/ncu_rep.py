"""Reports of Nsight Compute as it writes them: ncu itself turns them into a table, where it is installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from profiling.launch_nsys import without_injection
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.readers import ncu_csv
from profiling.trace.writer import StoreWriter

_MAGIC = b"NVR\0"
_SECONDS = 1800.0
_INSTALLED = "/usr/local/cuda/bin/ncu"
_BY_HAND = "Where it was recorded, `ncu --import FILE.ncu-rep --page raw --csv > FILE.csv` makes a table to bring."


class NcuReportReader:
    """Reads one report."""

    name = "ncu-rep"
    title = "a report of Nsight Compute"
    suffixes = (".ncu-rep",)

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Reports begin with four letters."""
        return head.startswith(_MAGIC)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Have ncu make a table and put it into a store. Raises: Unreadable."""
        ncu = shutil.which("ncu") or shutil.which(_INSTALLED)
        if not ncu:
            raise Unreadable(
                f"ncu is not installed on the console's machine, and only ncu reads its reports. {_BY_HAND}"
            )
        with tempfile.TemporaryDirectory(prefix="pitwall-export-") as folder:
            table = Path(folder) / "report.csv"
            _export(ncu, path, table)
            progress(0.5)
            ncu_csv.PLUGIN.read(table, writer, progress=lambda share: progress(0.5 + share / 2), limits=limits)


def _export(ncu: str, source: Path, table: Path) -> None:
    """Run ncu on a report. Raises: Unreadable with what it said."""
    link = table.with_name("report.ncu-rep")  # ncu goes by the ending
    link.symlink_to(source.absolute())
    command = [ncu, "--import", str(link), "--page", "raw", "--csv"]
    with table.open("wb") as output, tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                command,
                env=without_injection(),
                cwd=table.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=said,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            sentence = f"ncu did not export the report within {_SECONDS / 60:.0f} minutes."
            raise Unreadable(f"{sentence} {_BY_HAND}") from error
        said.seek(0)
        words = " ".join(said.read(4000).decode(errors="replace").split())[:300]
    if done.returncode or not table.stat().st_size:
        raise Unreadable(
            f"ncu cannot read the report: {words or f'exit code {done.returncode}'}. A report needs an ncu of its own "
            f"version or a newer one. {_BY_HAND}"
        )


PLUGIN = NcuReportReader()
