"""Pages of NVIDIA's DCGM exporter over time, in the text format of Prometheus.

The exporter's pages have no times. Either each line ends with one (ms, as Prometheus writes them), or a comment
`# time <Unix seconds>` stands before each page:

    while sleep 1; do echo "# time $(date +%s.%N)"; curl -s localhost:9400/metrics; done > dcgm.txt
"""

import re
from pathlib import Path

from profiling.trace.formats.text_lines import lines
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_LINE = re.compile(r"(DCGM_FI_\w+)\{([^}]*)\}\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TIME = re.compile(r"#\s*time:?\s+(\d{9,11}(?:\.\d+)?)\s*$", re.I)
_MEBIBYTES = ("DCGM_FI_DEV_FB_",)
_UNITS = {
    "_CLOCK": "MHz",
    "_TEMP": "°C",
    "_USAGE": "W",
    "_BYTES": "B/s",
    "_ACTIVE": "ratio",
    "_OCCUPANCY": "ratio",
    "_UTIL": "%",
}


class DcgmReader:
    """Reads pages of one or several nodes."""

    name = "dcgm"
    title = "pages of the DCGM exporter"
    suffixes = (".txt", ".prom", ".txt.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Text with DCGM's fields."""
        return b"DCGM_FI_" in head and head[:1] in (b"#", b"D", b"\n")

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put each field of each GPU into a store as a series. Raises: Unreadable where no time is told."""
        series: dict[tuple[str, str], int] = {}
        now, untimed, unusable, taken = 0, 0, 0, 0
        with UnpackedFile(path, limits=limits, progress=progress) as file:
            for line in lines(file):
                if match := _TIME.match(line):
                    now = round(float(match[1]) * 1e9)
                    continue
                parsed = _LINE.match(line)
                if parsed is None:
                    unusable += not line.startswith("#") and bool(line.strip())
                    continue
                at = int(parsed[4]) * 1_000_000 if parsed[4] else now
                if not at:
                    untimed += 1
                    continue
                key = (parsed[1], parsed[2])
                try:
                    value = float(parsed[3])
                except ValueError:
                    unusable += 1
                    continue
                if key not in series:
                    series[key] = _series(writer, *key)
                is_mebibytes = parsed[1].startswith(_MEBIBYTES)
                writer.count(series[key], at, value * (1 << 20) if is_mebibytes else value)
                taken += 1
                if taken > limits.samples:
                    break
            if file.problem:
                writer.note("warning", file.problem)
        if untimed and not taken:
            raise Unreadable(
                "The pages have no times. Write a line `# time <Unix seconds>` before each: "
                '`while sleep 1; do echo "# time $(date +%s.%N)"; curl -s localhost:9400/metrics; done > dcgm.txt`.'
            )
        if untimed or unusable:
            writer.note("warning", f"{untimed + unusable:,} lines were left out: no time, or no samples.")
        writer.meta("tool", "dcgm")


def _series(writer: StoreWriter, field: str, labels: str) -> int:
    """Return the series of a field of one GPU; a slice of a GPU (MIG) has one of its own."""
    labelled = dict(_LABEL.findall(labels))
    gpu = labelled.get("gpu", "")
    instance = labelled.get("GPU_I_ID", "")
    unit = "B" if field.startswith(_MEBIBYTES) else next((u for end, u in _UNITS.items() if field.endswith(end)), "")
    process = labelled.get("Hostname", "") + (f" MIG {instance}" if instance else "")
    return writer.counter(field, unit, device=int(gpu) if gpu.isdigit() and len(gpu) < 6 else -1, process=process)


PLUGIN = DcgmReader()
