"""JSON of AMD's rocprofv3 (`--output-format json`): a list with one object per process, names before the records.

A file that is cut off is read as far as it goes.
"""

from pathlib import Path
from typing import Any

from profiling.trace.formats.rocm import RocmTimeline
from profiling.trace.formats.whole_file import whole_json
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter

_GPU = 2
_CALLS = ("hip_api", "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api", "marker_api")


class RocprofJsonReader:
    """Reads one file, of one or several processes."""

    name = "rocprof-json"
    title = "JSON of rocprofv3"
    suffixes = (".json", ".json.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """An object with the tool's name as its key."""
        return head.lstrip().startswith(b"{") and b'"rocprofiler-sdk-tool"' in head[:4096]

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put kernels, copies and calls of all processes into a store. Raises: Unreadable."""
        processes = whole_json(path, writer, progress=progress, limits=limits, may_be_cut=True)["rocprofiler-sdk-tool"]
        timeline = RocmTimeline(writer, limits)
        devices: list[dict[str, object]] = []
        for process in processes if isinstance(processes, list) else [processes]:
            devices += _Process(process, timeline).read()
        writer.meta("devices", devices[:64])
        timeline.finish()


class _Process:
    """One process of a file."""

    def __init__(self, process: dict[str, Any], timeline: RocmTimeline) -> None:
        self._timeline = timeline
        self._records: dict[str, list[dict[str, Any]]] = process.get("buffer_records", {})
        about = process.get("metadata", {})
        self._pid = int(about.get("pid", -1))
        self._process = str((about.get("command") or [""])[0]).rpartition("/")[2]
        agents = process.get("agents", [])
        self._gpus = {a["id"]["handle"]: a for a in agents if a.get("type") == _GPU}
        self._kernels = {
            one["kernel_id"]: one.get("formatted_kernel_name") or one.get("kernel_name", "")
            for one in process.get("kernel_symbols", [])
        }
        strings = process.get("strings", {})
        self._kinds = [(str(kind["kind"]), kind["operations"]) for kind in strings.get("buffer_records", [])]
        self._marked = {one["key"]: one["value"] for one in strings.get("marker_api", []) if isinstance(one, dict)}

    def read(self) -> list[dict[str, object]]:
        """Add all records; return the devices by the number that their streams have, and what they are called."""
        for one in self._records.get("kernel_dispatch", []):
            self._kernel(one)
        for one in self._records.get("memory_copy", []):
            self._copy(one)
        for what in _CALLS:
            for one in self._records.get(what, []):
                self._call(one)
        return [
            {"id": self._device(agent["id"]), "name": str(agent.get("product_name") or agent.get("name", ""))}
            for agent in self._gpus.values()
        ]

    def _kernel(self, one: dict[str, Any]) -> None:
        about = one["dispatch_info"]
        details = {
            what: [about[f"{key}_size"][axis] for axis in "xyz"] for what, key in _SIZES if f"{key}_size" in about
        }
        self._timeline.kernel(
            str(self._kernels.get(about["kernel_id"], f"kernel {about['kernel_id']}")),
            one["start_timestamp"],
            one["end_timestamp"],
            pid=self._pid,
            process=self._process,
            device=self._device(about["agent_id"]),
            stream=_stream(one, about),
            correlation=one.get("correlation_id", {}).get("internal"),
            details=details,
        )

    def _copy(self, one: dict[str, Any]) -> None:
        sides = [one.get("dst_agent_id", {}), one.get("src_agent_id", {})]
        device = next((self._device(side) for side in sides if side.get("handle") in self._gpus), -1)
        self._timeline.copy(
            self._operation(one),
            one["start_timestamp"],
            one["end_timestamp"],
            pid=self._pid,
            process=self._process,
            device=device,
            stream=_stream(one, {}),
            correlation=one.get("correlation_id", {}).get("internal"),
            size=one.get("bytes"),
        )

    def _call(self, one: dict[str, Any]) -> None:
        correlation = one.get("correlation_id", {}).get("internal")
        domain = self._kinds[one["kind"]][0] if 0 <= one["kind"] < len(self._kinds) else ""
        name = str(self._marked.get(correlation, "")) if domain.startswith("MARKER") else ""
        self._timeline.call(
            name or self._operation(one),
            one["start_timestamp"],
            one["end_timestamp"],
            pid=self._pid,
            process=self._process,
            tid=int(one.get("thread_id", 0)),
            correlation=correlation,
            domain=domain,
        )

    def _device(self, agent: dict[str, Any]) -> int:
        gpu = self._gpus.get(agent.get("handle"))
        return int(gpu.get("logical_node_type_id", -1)) if gpu else -1

    def _operation(self, one: dict[str, Any]) -> str:
        kind, operation = one["kind"], one["operation"]
        if 0 <= kind < len(self._kinds) and 0 <= operation < len(self._kinds[kind][1]):
            return str(self._kinds[kind][1][operation])
        return f"operation {operation}"


_SIZES = (("grid", "grid"), ("block", "workgroup"))


def _stream(one: dict[str, Any], about: dict[str, Any]) -> int:
    """Return the number of the stream, 0 for the default one; of the queue where streams were not recorded."""
    return int((one.get("stream_id") or about.get("queue_id") or {}).get("handle", 0))


PLUGIN = RocprofJsonReader()
