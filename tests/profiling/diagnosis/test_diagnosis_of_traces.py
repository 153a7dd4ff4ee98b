"""Rules that look into recorded files: one case fires, one is clear, one lacks its input. Computed by hand."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiling.diagnosis.finding import finding_of, rules
from profiling.evidence import CaptureFacts, Evidence
from profiling.trace.category import Category
from tests.profiling.diagnosis import test_diagnosis
from tests.profiling.made_traces import Make, Trace, maker

KERNEL, TALK, COPY = Category.KERNEL, Category.COMMUNICATION, Category.COPY
NOTHING = Evidence()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return maker(tmp_path)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Traces of one rank or several; `value` is what the firing ones measure."""

    fires: tuple[Trace, ...]
    value: float
    clear: tuple[Trace, ...]
    missing: tuple[Trace, ...] = (Trace(host=[(0, 10, "aten::add", Category.OPERATOR)]),)
    rank: int = 0


def kernels(count: int, *, length: float, every: float, name: str = "add") -> list[tuple[float, float, str, Category]]:
    return [(i * every, length, name, KERNEL) for i in range(count)]


BUSY = kernels(10, length=100, every=100)

CASES: dict[str, Case] = {
    "device_idle": Case(
        fires=(Trace(device=kernels(10, length=30, every=100)),), value=0.3, clear=(Trace(device=BUSY),)
    ),
    "long_gap": Case(
        fires=(
            Trace(
                device=[(0, 100, "add", KERNEL), (800, 200, "add", KERNEL)],
                host=[(90, 720, "load_next_file", Category.RANGE)],
            ),
        ),
        value=0.7,
        clear=(Trace(device=BUSY),),
    ),
    "launch_bound": Case(
        fires=(
            Trace(
                device=kernels(100, length=0.005, every=10),
                launches=[(i * 10 - 0.02, 0.010) for i in range(100)],
            ),
        ),
        value=1.0,
        clear=(Trace(device=BUSY, launches=[(i * 100, 0.010) for i in range(10)]),),
        missing=(Trace(device=BUSY),),
    ),
    "cpu_bound": Case(
        fires=(
            Trace(
                device=kernels(10, length=40, every=100),
                launches=[(i * 100 - 0.015, 0.010) for i in range(10)],
            ),
        ),
        value=0.6,
        clear=(Trace(device=kernels(10, length=40, every=100), launches=[(i * 100 - 50, 0.010) for i in range(10)]),),
        missing=(Trace(device=BUSY),),
    ),
    "communication_exposed": Case(
        fires=(Trace(device=[(0, 600, "add", KERNEL), (500, 400, "ncclDevKernel_AllReduce", TALK)]),),
        value=0.3,
        clear=(Trace(device=[(0, 900, "add", KERNEL), (500, 400, "ncclDevKernel_AllReduce", TALK)]),),
        missing=(Trace(device=BUSY),),
    ),
    "no_overlap": Case(
        fires=(Trace(device=[(0, 600, "add", KERNEL), (500, 400, "ncclDevKernel_AllReduce", TALK)]),),
        value=0.25,
        clear=(Trace(device=[(0, 800, "add", KERNEL), (500, 400, "ncclDevKernel_AllReduce", TALK)]),),
        missing=(Trace(device=BUSY),),
    ),
    "late_rank": Case(
        fires=(
            Trace(device=[(0, 300, "ncclDevKernel_AllReduce", TALK)]),
            Trace(device=[(200, 100, "ncclDevKernel_AllReduce", TALK)]),
        ),
        value=0.2,
        clear=(
            Trace(device=[(0, 300, "ncclDevKernel_AllReduce", TALK)]),
            Trace(device=[(10, 290, "ncclDevKernel_AllReduce", TALK)]),
        ),
        missing=(Trace(device=[(0, 300, "ncclDevKernel_AllReduce", TALK)]),),
        rank=1,
    ),
    "hidden_sync": Case(
        fires=(
            Trace(
                device=BUSY,
                host=[
                    (0, 50, "cudaStreamSynchronize", Category.SYNC),
                    (100, 30, "cudaMemcpy", Category.RUNTIME),
                    (200, 400, "cudaMemcpyAsync", Category.RUNTIME),
                ],
            ),
        ),
        value=0.08,
        clear=(Trace(device=BUSY, host=[(0, 10, "cudaStreamSynchronize", Category.SYNC)]),),
    ),
    "copies": Case(
        fires=(Trace(device=[*BUSY, (0, 100, "Memcpy HtoD (Pinned -> Device)", COPY)], bytes=1 << 20),),
        value=0.1,
        clear=(Trace(device=[*BUSY, (0, 10, "Memcpy HtoD (Pinned -> Device)", COPY)], bytes=1 << 20),),
    ),
    "tensor_cores_unused": Case(
        fires=(
            Trace(
                device=[
                    (0, 90, "ampere_sgemm_128x64_tn", KERNEL),
                    (100, 10, "ampere_bf16_s16816gemm_bf16_128x128", KERNEL),
                ]
            ),
        ),
        value=0.1,
        clear=(Trace(device=[(0, 90, "ampere_bf16_s16816gemm_bf16_128x128", KERNEL)]),),
        missing=(Trace(device=BUSY),),
    ),
    "recompilation": Case(
        fires=(Trace(host=[(0, 100, "CompiledFxGraph compile_fx", Category.RANGE)]),),
        value=0.1,
        clear=(Trace(host=[(0, 100, "aten::add", Category.OPERATOR)]),),
        missing=(),
    ),
    "gc_pauses": Case(
        fires=(Trace(host=[(0, 20, "Python GC", Category.COLLECTOR), (100, 30, "gc.collect", Category.PYTHON)]),),
        value=0.05,
        clear=(Trace(host=[(0, 2, "Python GC", Category.COLLECTOR)]),),
    ),
    "engine_occupancy": Case(
        fires=(
            Trace(
                host=[
                    (0, 100, "execute_context_16(512)_generation_0(0)", Category.BATCH),
                    (100, 200, "execute_context_0(0)_generation_16(16)", Category.BATCH),
                    (300, 700, "execute_context_0(0)_generation_2(2)", Category.BATCH),
                ]
            ),
        ),
        value=0.7,
        clear=(Trace(host=[(0, 900, "execute_context_0(0)_generation_16(16)", Category.BATCH)]),),
    ),
    "profiler_overhead": Case(
        fires=(Trace(device=BUSY, host=[(0, 100, "CUPTI buffer flush", Category.OVERHEAD)]),),
        value=0.1,
        clear=(Trace(device=BUSY),),
        missing=(),
    ),
    "sm_idle": Case(
        fires=(Trace(samples={"DCGM_FI_PROF_SM_ACTIVE": [0.3, 0.5]}),),
        value=0.4,
        clear=(Trace(samples={"DCGM_FI_PROF_SM_ACTIVE": [0.9, 0.9]}),),
    ),
    "memory_bandwidth": Case(
        fires=(Trace(samples={"DCGM_FI_PROF_DRAM_ACTIVE": [0.7], "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": [0.1]}),),
        value=0.7,
        clear=(Trace(samples={"DCGM_FI_PROF_DRAM_ACTIVE": [0.7], "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": [0.6]}),),
        missing=(Trace(samples={"DCGM_FI_PROF_DRAM_ACTIVE": [0.7]}),),
    ),
    "throttling": Case(
        fires=(Trace(samples={"DCGM_FI_DEV_SM_CLOCK": [1000.0, 1000.0, 2000.0, 2000.0]}),),
        value=0.5,
        clear=(Trace(samples={"DCGM_FI_DEV_SM_CLOCK": [1950.0, 2000.0]}),),
    ),
    "fragmentation": Case(
        fires=(Trace(samples={"Total Reserved": [4e9, 8e9, 10e9], "Total Allocated": [4e9, 6e9, 5e9]}),),
        value=0.25,
        clear=(Trace(samples={"Total Reserved": [4e9, 6.2e9], "Total Allocated": [4e9, 6e9]}),),
        missing=(Trace(samples={"Total Reserved": [4e9]}),),
    ),
}


@pytest.mark.parametrize("key", CASES)
def test_a_rule_fires_is_clear_and_says_what_is_missing(key: str, make: Make) -> None:
    case, rule = CASES[key], rules()[key]
    fires = finding_of(key, rule, make(*case.fires))
    assert fires.state == "fires", fires.sentence()
    assert fires.observation is not None
    assert fires.observation.value == pytest.approx(case.value, rel=1e-4)
    assert (fires.observation.role, fires.observation.rank) == ("policy", case.rank)
    clear = finding_of(key, rule, make(*case.clear))
    assert clear.state == "clear", clear.sentence()
    missing = finding_of(key, rule, make(*case.missing) if case.missing else NOTHING)
    assert missing.state == "not_enough_data", missing.sentence()


def test_a_copy_from_unpinned_memory_fires_however_short(make: Make) -> None:
    found = finding_of(
        "copies",
        rules()["copies"],
        make(Trace(device=[*BUSY, (0, 1, "Memcpy HtoD (Pageable -> Device)", COPY)], bytes=1 << 20)),
    )
    assert found.state == "fires"


def test_the_gap_names_what_the_cpu_did(make: Make) -> None:
    found = finding_of("long_gap", rules()["long_gap"], make(*CASES["long_gap"].fires))
    assert "load_next_file" in found.sentence()


def test_an_error_of_the_device_fires_at_full_clock(make: Make) -> None:
    trace = Trace(samples={"DCGM_FI_DEV_SM_CLOCK": [2000.0], "DCGM_FI_DEV_XID_ERRORS": [0.0, 79.0]})
    found = finding_of("throttling", rules()["throttling"], make(trace))
    assert found.state == "fires"
    assert "79" in found.sentence()


def test_a_capture_says_what_is_not_there(make: Make) -> None:
    rule = rules()["capture_incomplete"]
    here = make(Trace(device=BUSY))
    whole = Evidence(recorded=here.recorded, capture=CaptureFacts(asked=("policy-0",), here=("policy-0",)))
    assert finding_of("capture_incomplete", rule, whole).state == "clear"
    lost = Evidence(recorded=here.recorded, capture=CaptureFacts(asked=("policy-0", "policy-1"), here=("policy-0",)))
    found = finding_of("capture_incomplete", rule, lost)
    assert (found.state, found.observation and found.observation.value) == ("fires", 1)
    assert "policy-1" in found.sentence()
    cut = make(Trace(device=BUSY, notes=["The file is cut off."]))
    assert "cut off" in finding_of("capture_incomplete", rule, cut).sentence()
    assert finding_of("capture_incomplete", rule, NOTHING).state == "not_enough_data"


def _tested() -> Iterator[str]:
    yield from test_diagnosis.CASES
    yield from CASES
    yield "capture_incomplete"
    yield "collective_mismatch"  # tests/profiling/diagnosis/test_flights.py


def test_every_rule_has_its_cases() -> None:
    assert set(_tested()) == set(rules())
