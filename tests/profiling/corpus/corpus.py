"""The corpus: healthy recordings and runs of many kinds, on which no rule may be bad, and faults for each rule."""

import pickle
import random
from collections.abc import Callable, Mapping, Sequence

from profiling.evidence import CaptureFacts, Evidence
from tests.profiling.corpus import runs
from tests.profiling.corpus.evidence import Bench
from tests.profiling.corpus.program import BASE, H100, MI300, P100, Program
from tests.profiling.corpus.recordings import (
    HOPPER,
    ROCM,
    VISION,
    Faults,
    diffusion,
    on_cpu,
    serving,
    sharded,
    training,
)
from tests.profiling.diagnosis.test_rules_on_files import CLOCK, DRAM, SM, TENSOR, XID, pages

Make = Callable[[random.Random, Bench], Evidence]
TYPES = ("c10::BFloat16", "c10::BFloat16")


def _ranks(rng: random.Random, **options: object) -> Sequence[Program]:
    seed = rng.random()
    return [training(random.Random(seed), ranks=2, rank=rank, **options) for rank in range(2)]  # type: ignore[arg-type]


def _pipeline(rng: random.Random) -> Sequence[Program]:
    """Two stages: the first sends little, the second reduces much; neither waits for the other in a collective."""
    seed = rng.random()
    first, second = training(random.Random(seed)), training(random.Random(seed), ranks=2)
    for program, name in ((first, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),):
        for _ in range(8):
            program.launch(name, rng.uniform(5, 20), stream=20)
        program.sync()
    return first, second


def _with_memory(program: Program, allocated: float, reserved: float) -> Program:
    for share in (0.5, 1.0, 0.9):
        program.work(1)
        program.memory(allocated * share, reserved)
    return program


def _dcgm(bench: Bench, rng: random.Random, **changed: float) -> Evidence:
    usual = {SM: rng.uniform(0.88, 0.97), DRAM: rng.uniform(0.3, 0.6), TENSOR: rng.uniform(0.4, 0.7)}
    fields = {**usual, **changed}
    told: dict[tuple[str, str, int], Sequence[float]] = {
        (name, f"node-{node}", gpu): [value * rng.uniform(0.99, 1.01) for _ in range(8)]
        for name, value in fields.items()
        if name in (SM, DRAM, TENSOR)
        for node in (1, 2)
        for gpu in (0, 1)
    }
    low = changed.get(CLOCK, 1.0)
    told |= {(CLOCK, "node-1", 0): [1980 * rng.uniform(0.98, 1.0) * (low if i > 3 else 1.0) for i in range(8)]}
    told |= {(XID, "node-1", 0): [0.0] * 8}
    return bench.of_files(pages(bench.path("txt"), told), role="")


def _without_tensor_cores(rng: random.Random) -> Program:
    return training(rng, device=P100, faults=Faults(slow_products=True))


HEALTHY: Mapping[str, Make] = {
    "training, bf16, one GPU": lambda rng, bench: bench.of(training(rng)),
    "training, Hopper, stacks, one rank of many": lambda rng, bench: bench.of(
        training(rng, names=HOPPER, device=H100, stacks=True, ranks=64, rank=rng.randrange(64), types=TYPES)
    ),
    "training, two ranks of a capture": lambda rng, bench: bench.of(
        *_ranks(rng), capture=CaptureFacts(asked=("policy-0", "policy-1"), here=("policy-0", "policy-1"))
    ),
    "training, stages of a pipeline": lambda rng, bench: bench.of(*_pipeline(rng)),
    "training, without marked steps": lambda rng, bench: bench.of(training(rng, is_marked=False, stacks=True)),
    "training, float32 on a GPU without tensor cores": lambda rng, bench: bench.of(_without_tensor_cores(rng)),
    "training, the garbage collector runs between steps": lambda rng, bench: bench.of(
        training(rng, faults=Faults(collects=rng.uniform(0.0003, 0.004)), stacks=True)
    ),
    "training, AMD": lambda rng, bench: bench.of(training(rng, names=ROCM, device=MI300, calls="hip", ranks=8)),
    "training, sharded, launches ahead": lambda rng, bench: bench.of(sharded(rng)),
    "training, little memory of a large GPU": lambda rng, bench: bench.of(
        _with_memory(training(rng), rng.uniform(1e9, 3e9), rng.uniform(5e9, 9e9))
    ),
    "training, nsys": lambda rng, bench: bench.of_nsys(training(rng, ranks=2), overhead=rng.uniform(0, 0.03)),
    "training, nsys, minimal": lambda rng, bench: bench.of_nsys(training(rng, is_marked=False), has_session=False),
    "training, CPU": lambda rng, bench: bench.of(on_cpu(rng)),
    "vision, TF32, loader with workers": lambda rng, bench: bench.of(training(rng, names=VISION, stacks=True)),
    "diffusion, eager, stacks": lambda rng, bench: bench.of(diffusion(rng)),
    "diffusion, compiled, stacks": lambda rng, bench: bench.of(diffusion(rng, is_compiled=True)),
    "serving, graphs": lambda rng, bench: bench.of(serving(rng)),
    "counters of DCGM": lambda rng, bench: _dcgm(bench, rng),
    "dumps of the flight recorder": lambda rng, bench: _flights(rng, bench),
    "GRPO, phases and readings": lambda rng, _bench: runs.run(rng),
    "GRPO, two steps recorded": lambda rng, _bench: runs.recorded(rng),
}


def _share(rng: random.Random) -> float:
    return rng.uniform(0.25, 0.6)


def _of(**wrong: object) -> Make:
    """Return training with something wrong, of a device and with or without stacks by seed."""

    def make(rng: random.Random, bench: Bench) -> Evidence:
        faults = Faults(**{key: _share(rng) if value == "share" else value for key, value in wrong.items()})  # type: ignore[arg-type]
        amd = rng.random() < 0.4
        options = {"names": ROCM, "device": MI300, "calls": "hip"} if amd else {}
        return bench.of(training(rng, faults=faults, stacks=rng.random() < 0.5, ranks=8, **options))  # type: ignore[arg-type]

    return make


def _late(rng: random.Random, bench: Bench) -> Evidence:
    seed = rng.random()
    late = rng.uniform(0.3, 0.9)
    waiting = training(random.Random(seed), ranks=2, faults=Faults(late=late, same_stream=True))
    return bench.of(waiting, training(random.Random(seed), ranks=2, faults=Faults(same_stream=True)))


def _lost(rng: random.Random, bench: Bench) -> Evidence:
    if rng.random() < 0.5:
        return bench.of(training(rng), cut=rng.uniform(0.4, 0.9))
    facts = CaptureFacts(asked=("policy-0", "policy-1"), here=("policy-0",))
    return bench.of(training(rng), capture=facts)


def _fragmented(rng: random.Random, bench: Bench) -> Evidence:
    reserved = rng.uniform(72e9, 84e9)
    return bench.of(_with_memory(training(rng), reserved * rng.uniform(0.4, 0.7), reserved))


def _flights(rng: random.Random, bench: Bench, *, skipped: int = 0) -> Evidence:
    """Return dumps of the flight recorder of two ranks; the second skips so many of the last collectives."""
    calls, paths = rng.randint(5, 20), [bench.path("pickle") for _ in range(2)]
    for rank, path in enumerate(paths):
        called = range(1, calls + 1 - skipped * rank)
        entries = [_collective(number, is_open=number > calls - skipped) for number in called]
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        path.write_bytes(pickle.dumps({"version": "2.10", "pg_config": groups, "entries": entries}, protocol=4))
    return bench.of_files(*paths)


def _collective(number: int, *, is_open: bool) -> dict[str, object]:
    created = BASE * 1000 + number * 10**9
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created,
        "input_sizes": [[1024]],
        "input_dtypes": ["BFloat16"],
        "state": "scheduled" if is_open else "completed",
        "time_discovered_completed_ns": None if is_open else created + 5_000_000,
        "frames": [{"filename": "train.py", "line": 7, "name": "step"}],
    }


def _engine(**options: object) -> Make:
    return lambda rng, bench: bench.of(serving(rng, **options))  # type: ignore[arg-type]


PLANTED: Mapping[str, Sequence[Make]] = {
    **{key: (lambda rng, _bench, make=make: make(rng),) for key, make in runs.PLANTED.items()},  # type: ignore[misc]
    "data_wait": (
        lambda rng, _bench: runs.PLANTED["data_wait"](rng),
        _of(load="share"),
        lambda rng, bench: bench.of(training(rng, names=VISION, is_marked=False, faults=Faults(load=_share(rng)))),
    ),
    "hidden_sync": (
        _of(items=True),
        lambda rng, bench: bench.of(diffusion(rng, faults=Faults(items=True))),
        _engine(faults=Faults(items=True)),
    ),
    "recompilation": (_of(compiles=True),),
    "tensor_cores_unused": (_of(slow_products=True),),
    "fragmentation": (_fragmented,),
    "capture_incomplete": (_lost,),
    "communication_exposed": (_of(same_stream=True, late=0.1),),
    "no_overlap": (_of(same_stream=True, late=0.1),),
    "late_rank": (_late,),
    "collective_mismatch": (lambda rng, bench: _flights(rng, bench, skipped=rng.randint(1, 3)),),
    "copies": (_of(unpinned=True),),
    "launch_bound": (
        _of(tiny=True),
        lambda rng, bench: bench.of(diffusion(rng, faults=Faults(tiny=True))),
        _engine(faults=Faults(tiny=True)),
    ),
    "cpu_bound": (_of(tiny=True),),
    "device_idle": (_of(python="share"), lambda rng, bench: bench.of(diffusion(rng, faults=Faults(python=1.0)))),
    "long_gap": (_of(pause=900_000.0),),
    "gc_pauses": (_of(collects="share"),),
    "profiler_overhead": (_of(flushes="share"), lambda rng, bench: bench.of_nsys(training(rng), overhead=_share(rng))),
    "engine_occupancy": (lambda rng, _bench: runs.PLANTED["engine_occupancy"](rng), _engine(tail=True)),
    "sm_idle": (lambda rng, bench: _dcgm(bench, rng, **{SM: rng.uniform(0.1, 0.6)}),),
    "memory_bandwidth": (
        lambda rng, bench: _dcgm(bench, rng, **{DRAM: rng.uniform(0.65, 0.9), TENSOR: rng.uniform(0.02, 0.2)}),
    ),
    "throttling": (lambda rng, bench: _dcgm(bench, rng, **{CLOCK: rng.uniform(0.5, 0.8)}),),
}
