"""What recording takes from training at steps of 250 ms: `python -m tests.bench.recording_cost`.

One process trains a small transformer on one thread, as a worker is recorded: 6 steps with the tool, 6 without, by
turns, so that what else happens on the machine meets both alike. Of 6 steps the fastest counts, as in `timeit`: what a
neighbour takes only adds. A number is the median over turns of how much more CPU that step took with the tool than
before and after it, and the same by the clock on the wall, which on a busy machine says more about its other work.

What torch costs is a price per event, so the bench says how many a step has: two micro-batches of a model of four
layers and AdamW parameter by parameter make about 5,800, of which one takes 1 to 3 µs. On CPU glibc's malloc
adds to it: what the profiler keeps comes to lie between the tensors, so that the next tensor does not fit where one was
freed, and the heap grows by pages that are new. With jemalloc it does not; that is measured, too.

Phases are always on, so there is nothing to take turns with: theirs is what the marks of one step take by themselves.
Starting and ending are not part of it (tests/bench/profiling.py has them). On a machine whose steps vary by a fifth of
themselves the median of 60 turns is good for about 1.5 percent; that is four minutes a tool.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from profiling.launch_nsys import problem_of_install
from tests.bench.program import result, run
from tests.bench.stage import Result, print_table

COMMAND = "python -m tests.bench.recording_cost"
TURNS = 60
GOALS = {"phases": 0.1, "nsys": 1.0, "torch": 5.0}
"""Percent of a step."""

TRAINING = """
import gzip, json, statistics, sys, tempfile, time
from pathlib import Path
import torch
from profiling import process_memory, profile
from profiling.captures import recording

torch.set_num_threads(1)
torch.manual_seed(0)
profile.configure("auto")
tool, turns = sys.argv[1], int(sys.argv[2])
WIDTH, LAYERS, PARTS, TOKENS = 256, 4, 2, 64
layer = torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
head = torch.nn.Linear(WIDTH, 1000)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4, foreach=False)
rows = 1

def marks(body):
    with profile.mark("update", step=body.step):
        for part in range(PARTS):
            with profile.mark("update", name="forward"):
                body.forward()
            with profile.mark("update", name="backward"):
                body.backward()
        with profile.mark("update", name="optimizer"):
            body.optimize()

class Step:
    step = 0

    def forward(self):
        given = torch.randn(rows, TOKENS, WIDTH)
        wanted = torch.randint(0, 1000, (rows * TOKENS,))
        self.loss = torch.nn.functional.cross_entropy(head(model(given)).flatten(0, 1), wanted)

    def backward(self):
        self.loss.backward()

    def optimize(self):
        optimizer.step()
        optimizer.zero_grad()

class Nothing(Step):
    def forward(self): pass
    def backward(self): pass
    def optimize(self): pass

def one(body):
    body.step += 1
    recording.at_step(body.step)
    wall, cpu = time.perf_counter(), time.thread_time()
    marks(body)
    return time.thread_time() - cpu, time.perf_counter() - wall

def written(path):
    while (outcome := recording.outcome(path)).size < 0:
        assert not outcome.problem, outcome
        time.sleep(0.01)

def block(body, count):
    found = [one(body) for _ in range(count)]
    profile.drain()
    return [min(values) for values in zip(*found)]

body = Step()
one(body)
while block(body, 3)[0] < 0.24:
    rows += 1
told = {"step": [block(body, 5)[0]], "rows": [rows]}
if tool == "phases":
    cost = [block(Nothing(), 200)[0] for _ in range(turns)]
    told["cpu"] = [100 * seconds / told["step"][0] for seconds in cost]
else:
    told |= {"cpu": [], "wall": []}
    with tempfile.TemporaryDirectory() as folder:
        recording.start(tool, folder=Path(folder), name="first")  # pays what a process pays once
        one(body)
        written(recording.stop())
        before = None
        for turn in range(turns + 1):
            beside = block(body, 6)
            if turn:
                for kind, was, there, now in zip(("cpu", "wall"), before, recorded, beside):
                    told[kind].append(100 * (2 * there / (was + now) - 1))
            before = beside
            recording.start(tool, folder=Path(folder), name=f"c{turn}")
            held = process_memory.ProcessFiles().resident_bytes()
            recorded = block(body, 6)
            grown = process_memory.ProcessFiles().resident_bytes() - held
            written(path := recording.stop())
        if tool == "torch":
            told["grown"] = [grown / 1e6]
            with gzip.open(path) as trace:
                told["events"] = [sum(one.get("ph") == "X" for one in json.load(trace)["traceEvents"]) / 6]
print(json.dumps(told))
"""


def measure(turns: int) -> list[Result]:
    """Measure phases, nsys where it is installed, and torch."""
    found = []
    for tool in GOALS:
        if tool == "nsys" and (problem := problem_of_install()):
            print(f"Without nsys: {problem}", flush=True)
            continue
        found += _rows(tool, run(TRAINING, tool, str(turns), under_nsys=tool == "nsys"))
    if jemalloc := _jemalloc():
        found += _rows("torch, jemalloc", run(TRAINING, "torch", str(turns), preload=jemalloc))
    return found


def _rows(name: str, told: dict[str, list[float]]) -> list[Result]:
    found = [
        result(f"recording, {name}: a step beside it", told["step"], "s", COMMAND),
        result(f"recording, {name}: of a step's CPU", told["cpu"], "%", COMMAND),
    ]
    if "wall" in told:
        found.append(result(f"recording, {name}: of a step's wall time", told["wall"], "%", COMMAND))
    if "events" in told:
        found.append(result(f"recording, {name}: events of a step", told["events"], "", COMMAND))
        found.append(result(f"recording, {name}: memory that the last turn took", told["grown"], "MB", COMMAND))
    return found


def _jemalloc() -> Path | None:
    """Return the library that Ray brings with it for its own processes."""
    ray = importlib.util.find_spec("ray")
    path = Path(str(ray.origin)).parent / "core" / "libjemalloc.so" if ray else None
    return path if path and path.exists() else None


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print; the exit code is 1 if a recording costs more than it may."""
    results = measure(int(arguments[0]) if arguments else TURNS)
    print_table(results)
    by_name = {one.what: one.median for one in results}
    costs = {tool: by_name.get(f"recording, {tool}: of a step's CPU", 0.0) for tool in GOALS}
    missed = [f"{tool} {cost:.2f} % (at most {GOALS[tool]} %)" for tool, cost in costs.items() if cost > GOALS[tool]]
    if missed:
        sys.exit(f"Recording costs too much: {'; '.join(missed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
