"""Chrome traces of the torch profiler: `.json` and `.json.gz`, with or without a GPU, of NVIDIA or AMD."""

from pathlib import Path

from profiling.trace.formats.torch_trace import is_trace, read_trace
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter


class TorchReader:
    """Reads one trace, of one process or of several."""

    name = "torch"
    title = "a trace of the torch profiler"
    suffixes = (".pt.trace.json", ".pt.trace.json.gz", ".json", ".json.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """JSON with the keys of a trace."""
        return is_trace(head)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the trace into a store. Raises: Unreadable."""
        read_trace(path, writer, progress=progress, limits=limits)


PLUGIN = TorchReader()
