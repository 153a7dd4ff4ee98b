"""What other tools make of a trace of torch: run by `make proof-steps` in an environment that has them, told as JSON.

    python step_judges.py TRACE [FOLDER OF TRACELENS]

plugin: steps of TensorBoard's torch profiler plugin, (number, begin, end) in us. hta: how many operations of the device
Holistic Trace Analysis counts for each step (-1: for none). tracelens: busy, compute, exposed communication and copies,
idle of all of the recording, in us; only with the folder.
"""

import contextlib
import gzip
import importlib
import json
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> None:
    """Ask all judges, and print what they say as the last line."""
    path = Path(sys.argv[1])
    raw = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    events = [event for event in raw["traceEvents"] if event.get("ph") == "X" and event.get("cat")]
    with contextlib.redirect_stdout(sys.stderr):
        told: dict[str, Any] = {"plugin": _plugin(events), "hta": _hta(path)}
        if len(sys.argv) > 2:
            told["tracelens"] = _tracelens(events, Path(sys.argv[2]))
    print(json.dumps(told))


def _plugin(events: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    trace = importlib.import_module("torch_tb_profiler.profiler.trace")
    parser = importlib.import_module("torch_tb_profiler.profiler.event_parser").EventParser()
    # the plugin knows calls of the runtime by the name that torch gave them when it was written
    renamed = ({**event, "cat": "Runtime"} if event["cat"].endswith("_runtime") else event for event in events)
    made = [one for event in renamed if (one := trace.create_event(event, False)) is not None]
    parser.parse(sorted(made, key=lambda event: event.ts), {})
    return [(int(name), begin, end) for name, (begin, end) in zip(parser.steps_names, parser.steps, strict=True)]


def _hta(path: Path) -> dict[str, int]:
    trace = importlib.import_module("hta.common.trace").Trace(trace_files={0: str(path)}, trace_dir="/")
    trace.parse_traces(use_multiprocessing=False)
    table = trace.get_trace(0)
    return {str(step): int(n) for step, n in Counter(table[table["stream"] >= 0]["iteration"].tolist()).items()}


def _tracelens(events: list[dict[str, Any]], folder: Path) -> dict[str, float]:
    for name, place in (("TraceLens", folder / "TraceLens"), ("TraceLens.TreePerf", folder / "TraceLens" / "TreePerf")):
        package = types.ModuleType(name)  # the modules that are asked for, without all that the package imports
        package.__path__ = [str(place)]
        sys.modules[name] = package
    analyser = importlib.import_module("TraceLens.TreePerf.gpu_event_analyser").GPUEventAnalyser
    numbered = [{**event, "UID": i} for i, event in enumerate(events)]
    lists = analyser(numbered).get_gpu_event_lists()
    return {key: float(value) for key, value in analyser.compute_metrics_dict(lists).items() if value is not None}


if __name__ == "__main__":
    main()
