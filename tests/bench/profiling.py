"""What profiling costs: a mark of each backend, the start and stop of a capture, a worker that is ready for nsys, and
then a trace of ten million events (tests/bench/traces.py).

    python -m tests.bench.profiling

Each number comes from a process of its own, as workers are; nsys is left out where it is not installed.
"""

import sys

from profiling.launch_nsys import problem_of_install
from tests.bench import recording, recording_cost, traces
from tests.bench.program import result, run
from tests.bench.stage import Result, print_table

COMMAND = "python -m tests.bench.profiling"
TIMES = 5

MARKS = """
import json, sys, time
from profiling import profile

def cost(name):
    found = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(5000):
            with profile.mark("update", step=1, name=name):
                pass
        found.append((time.perf_counter() - begin) / 5000 * 1e6)
        profile.drain()
    return sorted(found)

profile.configure(sys.argv[1])
told = {"phase": cost("")}
with profile.mark("update", step=1):
    told["detail"] = cost("forward")
print(json.dumps(told))
"""

CAPTURE = """
import json, sys, tempfile, time
from pathlib import Path
from profiling import profile
from profiling.captures import recording
import torch

profile.configure("auto")
told = {"start": [], "stop": [], "file": []}
weights = torch.randn(128, 128)
with tempfile.TemporaryDirectory() as folder:
    for number in range(int(sys.argv[2]) + 1):
        begin = time.perf_counter()
        recording.start(sys.argv[1], folder=Path(folder), name=f"c{number}")
        started = time.perf_counter()
        for step in (1, 2):
            recording.at_step(step)
            for _ in range(200):
                with profile.mark("update", step=step):
                    weights @ weights
        stopping = time.perf_counter()
        path = recording.stop()
        stopped = time.perf_counter()
        while recording.outcome(path).size < 0 and not recording.outcome(path).problem:
            time.sleep(0.005)
        assert not recording.outcome(path).problem, recording.outcome(path)
        told["start"].append(started - begin)
        told["stop"].append(stopped - stopping)
        told["file"].append(time.perf_counter() - stopped)
print(json.dumps(told))
"""

LAYER = """
import json, sys, tempfile, time
from pathlib import Path
from profiling import profile
from profiling.captures import recording
from profiling.trace.importing import import_trace

profile.configure("auto")
told = {"stop": [], "file": [], "import": []}
with tempfile.TemporaryDirectory() as folder:
    for number in range(int(sys.argv[2])):
        recording.start("nsys", folder=Path(folder), name=f"c{number}")
        for step in range(1, 11):
            recording.at_step(step)
            with profile.mark("update", step=step):
                for _ in range(int(sys.argv[1]) // 10):
                    with profile.mark("update", name="forward"):
                        pass
        profile.drain()
        begin = time.perf_counter()
        path = recording.stop()
        stopped = time.perf_counter()
        while (outcome := recording.outcome(path)).size < 0:
            assert not outcome.problem, outcome
            time.sleep(0.005)
        written = time.perf_counter()
        import_trace(path, Path(folder) / f"{number}.store")
        told["stop"].append(stopped - begin)
        told["file"].append(written - stopped)
        told["import"].append(time.perf_counter() - written)
print(json.dumps(told))
"""

WORKER_START = """
import json, sys, time
import ray
from profiling.launch_nsys import runtime_env

ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

class Worker:
    def ready(self):
        return True

def start(environment):
    begin = time.perf_counter()
    actor = ray.remote(Worker).options(num_cpus=1, runtime_env=environment or None).remote()
    ray.get(actor.ready.remote())
    seconds = time.perf_counter() - begin
    ray.kill(actor)
    return seconds

told = {}
for ready in ("off", "auto"):
    environment = runtime_env(ready=ready, trace="nvtx")
    start(environment)
    told[ready] = sorted(start(environment) for _ in range(int(sys.argv[1])))
print(json.dumps(told))
"""


def marks(*, has_nsys: bool) -> list[Result]:
    """Measure a mark of each backend that works without an accelerator."""
    found = []
    for name in ("none", "timers", "nvtx", "torch"):
        told = run(MARKS, name)
        found += [result(f"mark, {name}: {kind}", values, "µs", COMMAND) for kind, values in told.items()]
    if has_nsys:
        told = run(MARKS, "auto", under_nsys=True)
        found += [result(f"mark, auto in a worker under nsys: {kind}", v, "µs", COMMAND) for kind, v in told.items()]
    return found


def captures(*, has_nsys: bool) -> list[Result]:
    """Measure captures of two steps of 200 marks in one process."""
    found = []
    for tool in ("torch", "nsys") if has_nsys else ("torch",):
        told = run(CAPTURE, tool, str(TIMES), under_nsys=tool == "nsys")
        found.append(result(f"capture, {tool}: first start in a process", told["start"][:1], "s", COMMAND))
        names = {"start": "start", "stop": "stop", "file": "stop to complete file"}
        found += [result(f"capture, {tool}: {text}", told[key][1:], "s", COMMAND) for key, text in names.items()]
    return found


def worker_start() -> list[Result]:
    """Measure how much later a Ray actor answers when it is started under nsys."""
    told = run(WORKER_START, str(TIMES))
    return [
        result("Ray actor, creation to first answer", told["off"], "s", COMMAND),
        result("the same, ready for nsys", told["auto"], "s", COMMAND),
    ]


def layer() -> list[Result]:
    """Measure how soon a report of nsys with 500,000 ranges can be looked at, without its way to the console."""
    told = run(LAYER, "500000", "3", under_nsys=True)
    names = {"stop": "nsys ends and makes its report", "file": "stop to complete file", "import": "import"}
    return [result(f"nsys, 500,000 ranges: {text}", told[key], "s", COMMAND) for key, text in names.items()]


def main() -> None:
    """Measure and print all; the exit code is 1 if a promise is broken."""
    problem = problem_of_install()
    if problem:
        print(f"Without nsys: {problem}", flush=True)
    print_table(
        [
            *marks(has_nsys=not problem),
            *captures(has_nsys=not problem),
            *([*worker_start(), *layer()] if not problem else []),
        ]
    )
    broken = []
    for part in (recording_cost, traces, recording):
        try:
            part.main([])
        except SystemExit as error:  # a promise that is broken does not keep the others from being measured
            broken += [str(error)] if error.code else []
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
