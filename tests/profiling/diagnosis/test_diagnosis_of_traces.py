"""Rules that look into recorded files: one case fires, one is clear, one lacks its input. Computed by hand."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from profiling.diagnosis.finding import finding_of, rules
from profiling.evidence import CaptureFacts, Evidence, Readings
from profiling.trace.category import Category
from tests.profiling.diagnosis import test_diagnosis
from tests.profiling.made_traces import Event, Make, Trace, maker

KERNEL, TALK, COPY, SYNC = Category.KERNEL, Category.COMMUNICATION, Category.COPY, Category.SYNC
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


WAIT = "cudaDeviceSynchronize"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
BUSY = kernels(10, length=100, every=100)

HELD = {"Total Reserved": [4e9, 8e9, 10e9], "Total Allocated": [4e9, 6e9, 5e9]}

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
                device=kernels(100, length=0.005, every=0.05),
                launches=[(i * 0.05 - 0.02, 0.010) for i in range(100)],
                window=5,
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
            Trace(  # twice the device waits 50 ms for a thread that waited for it
                device=[(0, 100, "add", KERNEL), (150, 100, "add", KERNEL), (300, 700, "add", KERNEL)],
                launches=[(0, 0.01), (149, 0.01), (299, 0.01)],
                host=[(10, 95, "cudaStreamSynchronize", SYNC), (160, 91, "cudaMemcpy", Category.RUNTIME)],
            ),
        ),
        value=0.1,
        clear=(
            Trace(  # the thread waits for most of the time, and the device never does
                device=BUSY,
                launches=[(i * 40, 0.01) for i in range(10)],
                host=[(i * 40 + 1, 38, "cudaStreamSynchronize", SYNC) for i in range(10)],
            ),
        ),
        missing=(Trace(device=BUSY),),
    ),
    "copies": Case(
        fires=(
            Trace(
                device=[
                    (0, 800, "add", KERNEL),
                    (700, 200, "Memcpy HtoD (Pinned -> Device)", COPY),
                ],
                bytes=1 << 20,
            ),
        ),
        value=0.1,
        clear=(Trace(device=[*BUSY, (0, 900, "Memcpy HtoD (Pinned -> Device)", COPY)], bytes=1 << 20),),
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
        fires=(
            Trace(
                host=[
                    (0, 100, "aten::add", Category.OPERATOR),
                    (200, 80, "_compile.compile_inner (dynamo_timed)", Category.RANGE),
                    (210, 60, "torch/_inductor/compile_fx.py(900): compile_fx_inner", Category.PYTHON),
                    (300, 20, "cuModuleLoadData", Category.RUNTIME),
                ]
            ),
        ),
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
        fires=(Trace(device=[(0, 1000, "add", KERNEL)], host=[(0, 100, "CUPTI buffer flush", Category.OVERHEAD)]),),
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
        fires=(Trace(samples=HELD, meta={"devices": [{"id": 0, "totalGlobalMem": 9.9e9}]}),),
        value=0.25,
        clear=(Trace(samples=HELD, meta={"devices": [{"id": 0, "totalGlobalMem": 80e9}]}),),
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


def states(key: str, *evidences: Evidence) -> list[str]:
    return [finding_of(key, rules()[key], one).state for one in evidences]


def test_copies_from_unpinned_memory_fire_from_one_per_cent_on(make: Make) -> None:
    def copied(length: float) -> Evidence:
        copies = [(900.0 + 30 * i, length, PAGEABLE, COPY) for i in range(3)]
        return make(Trace(device=[(0, 900, "add", KERNEL), *copies], bytes=1 << 20))

    assert states("copies", copied(1), copied(5)) == ["clear", "fires"]


@pytest.mark.parametrize(
    ("case", "trace"),
    [
        ("nothing is launched after it", Trace(device=BUSY[:5], launches=[(0, 0.01)] * 5, host=[(0, 900, WAIT, SYNC)])),
        (
            "the last of its kind, after the last step",
            Trace(
                device=[(0, 500, "add", KERNEL), (900, 50, "add", KERNEL)],
                launches=[(0, 0.01), (899, 0.01)],
                host=[(0, 450, "ProfilerStep#1", Category.STEP), (460, 60, WAIT, SYNC)],
            ),
        ),
        (
            "another thread keeps the device at work",
            Trace(
                device=[(0, 100, "add", KERNEL), (100, 890, "other", KERNEL), (990, 5, "add", KERNEL)],
                launches=[(0, 0.01)],
                host=[(10, 91, WAIT, SYNC)],
            ),
        ),
    ],
)
def test_a_wait_that_costs_nothing_is_no_hidden_one(case: str, trace: Trace, make: Make) -> None:
    found = finding_of("hidden_sync", rules()["hidden_sync"], make(trace))
    assert (found.state, found.observation and found.observation.value) == ("clear", 0.0), case


def test_short_kernels_are_no_fault_where_something_else_keeps_the_device_idle(make: Make) -> None:
    def trace(count: int, *ranges: Event) -> Trace:
        launches = [(i * 0.05 - 0.02, 0.010) for i in range(count)]
        return Trace(
            device=kernels(count, length=0.005, every=0.05), launches=launches, host=(step, *ranges), window=100
        )

    step = (0.0, 100.0, "ProfilerStep#1", Category.STEP)
    loader = (5.0, 95.0, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Category.RANGE)
    # 100 launches within 5 of 100 ms, in which the loader keeps the device idle; and too few of them to say anything
    assert states("launch_bound", make(trace(100, loader)), make(trace(2))) == ["clear", "not_enough_data"]
    assert states("cpu_bound", make(trace(100, loader)), make(trace(2))) == ["clear", "not_enough_data"]


@pytest.mark.parametrize(
    ("waits", "state", "value"),
    [
        ({4: 300, 8: 300, 12: 300}, "fires", 600 / 1700),  # four workers fall behind, and are waited for in turn
        ({1: 300}, "clear", 0.0),  # they start once
        ({}, "clear", 0.0),
    ],
)
def test_a_loader_is_waited_for_every_few_steps(waits: dict[int, int], state: str, value: float, make: Make) -> None:
    """The median step waits for nothing then, though the device is idle for a third of the time."""
    device: list[Event] = []
    host: list[Event] = []
    launches: list[tuple[float, float]] = []
    at = 0.0
    for i in range(1, 13):
        begin, wait = at, waits.get(i, 0)
        if wait:
            host.append((at, wait, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", Category.RANGE))
        at += wait
        launches.append((at, 0.01))
        device.append((at, 100, "add", KERNEL))
        host.append((begin, wait + 100, f"ProfilerStep#{i}", Category.STEP))
        at += 100
    found = finding_of("data_wait", rules()["data_wait"], make(Trace(device=device, launches=launches, host=host)))
    assert found.observation is not None
    assert (found.state, found.observation.value) == (state, pytest.approx(value, abs=0.01))


def test_of_collectives_alone_nothing_is_said_of_what_hides_them(make: Make) -> None:
    alone = make(Trace(device=[(0, 300, "ncclDevKernel_AllReduce", TALK)]))
    for key in ("communication_exposed", "no_overlap"):
        assert states(key, alone) == ["not_enough_data"]


def test_the_profiler_s_work_before_the_steps_does_not_stretch_them(make: Make) -> None:
    steps = [(500.0 + 100 * i, 100.0, f"ProfilerStep#{i}", Category.STEP) for i in range(5)]
    before = (0.0, 400.0, "CUPTI initialization", Category.OVERHEAD)
    within = (600.0, 50.0, "Buffer flush", Category.OVERHEAD)
    found = finding_of("profiler_overhead", rules()["profiler_overhead"], make(Trace(host=[*steps, before, within])))
    assert found.observation is not None
    assert round(found.observation.value, 6) == 0.1  # 50 of the 500 ms of steps


def test_without_steps_the_profiler_s_work_counts_from_the_first_to_the_last_work(make: Make) -> None:
    before, within = (0.0, 400.0, "CUPTI initialization", Category.OVERHEAD), (600.0, 25.0, "flush", Category.OVERHEAD)
    device = [(500.0, 50.0, "add", KERNEL), (950.0, 50.0, "add", KERNEL)]
    found = finding_of(
        "profiler_overhead", rules()["profiler_overhead"], make(Trace(device=device, host=[before, within]))
    )
    assert found.observation is not None
    assert round(found.observation.value, 6) == 0.05  # 25 of the 500 ms
    calls = [(410.0, 1.0, "cuInit", Category.RUNTIME)]
    assert states("profiler_overhead", make(Trace(host=[before, *calls]))) == ["not_enough_data"]


def test_a_snapshot_that_does_not_tell_the_device_s_memory_gives_no_share_of_it(make: Make) -> None:
    held = {"Total Reserved": [8e9, 10e9], "Total Allocated": [8e9, 9e9]}
    said = finding_of("fragmentation", rules()["fragmentation"], make(Trace(samples=held)))
    assert said.sentence() == (
        "At its peak device 0 of policy 0 had 9.31 GiB of its memory reserved and 8.38 GiB in use: 10 % lay idle."
    )


def test_a_wait_costs_no_more_than_it_lasts_and_nothing_where_work_is_queued(make: Make) -> None:
    short = Trace(  # the thread waits for 20 ms, and then does something else for 380 ms
        device=[(0, 100, "add", KERNEL), (500, 500, "add", KERNEL)],
        launches=[(0, 0.01), (499, 0.01)],
        host=[(90, 20, WAIT, SYNC)],
    )
    queued = Trace(  # the device waits for something else: its next work was launched before it stood still
        device=[(0, 100, "add", KERNEL), (400, 100, "add", KERNEL), (500, 500, "add", KERNEL)],
        launches=[(0, 0.01), (1, 0.01), (450, 0.01)],
        host=[(10, 400, WAIT, SYNC)],
    )
    values = [finding_of("hidden_sync", rules()["hidden_sync"], make(one)).observation for one in (short, queued)]
    assert [one and round(one.value, 6) for one in values] == [0.02, 0.0]


NO_COMPILING = (
    ("## Call CompiledFxGraph fx1 ##", Category.RANGE),
    ("Torch-Compiled Region: 0/0", Category.RANGE),
    ("CompiledFunctionBackward", Category.OPERATOR),
    ("TorchDynamo Cache Lookup", Category.RANGE),
    ("torch/_compile.py(23): inner", Category.PYTHON),
    ("torch/_inductor/compile_fx.py(1200): run", Category.PYTHON),
    ("torch/_inductor/compile_worker/subproc_pool.py(180): _read_thread", Category.PYTHON),
    ("triton/compiler/compiler.py(400): launch_metadata", Category.PYTHON),
    ("torch/_dynamo/eval_frame.py(600): _fn", Category.PYTHON),
)
COMPILING = (
    ("_compile.compile_inner (dynamo_timed)", Category.RANGE),
    ("entire_frame_compile", Category.RANGE),
    ("async_compile.wait (dynamo_timed)", Category.RANGE),
    ("torch/_dynamo/convert_frame.py(500): _compile", Category.PYTHON),
    ("triton/compiler/compiler.py(220): compile", Category.PYTHON),
    ("hipModuleLoadData", Category.RUNTIME),
    ("cudaLibraryLoadData", Category.RUNTIME),
    ("Module loading", Category.OVERHEAD),
    ("Driver JIT compiler", Category.OVERHEAD),
)


def test_calls_of_what_is_compiled_are_no_compiling(make: Make) -> None:
    add = (0.0, 1.0, "aten::add", Category.OPERATOR)
    calls = make(Trace(host=[add, *((100 * i, 90, *one) for i, one in enumerate(NO_COMPILING))]))
    work = make(Trace(host=[add, *((100 * i, 2**i / 10, *one) for i, one in enumerate(COMPILING))]))
    asleep = make(Trace(host=[add], pool=[(100, 300, *COMPILING[4])]))
    steps = [(i * 300.0, 300.0, f"ProfilerStep#{i}", Category.STEP) for i in range(3)]
    first = make(Trace(host=[add, *steps, (10, 280, *COMPILING[0])]))
    assert states("recompilation", calls, asleep, first) == ["clear"] * 3
    found = finding_of("recompilation", rules()["recompilation"], work).observation
    assert found is not None
    assert found.value == pytest.approx((2 ** len(COMPILING) - 1) / 10 / 1000)  # each of them counts


def test_code_that_is_loaded_before_work_repeats_itself_is_no_recompilation(make: Make) -> None:
    names = ("gemm_a", "softmax", "gemm_b")
    device = [(100 + 150.0 * i + 45 * j, 40.0, name, KERNEL) for i in range(6) for j, name in enumerate(names)]
    early = make(Trace(device=device, host=[(10, 80, "cuModuleLoadData", Category.RUNTIME)]))
    late = make(Trace(device=device, host=[(600, 80, "cuModuleLoadData", Category.RUNTIME)]))

    assert states("recompilation", early, late) == ["clear", "fires"]


def test_code_that_is_loaded_before_the_first_launch_is_no_recompilation(make: Make) -> None:
    launch = (300, 5, "cudaLaunchKernel", Category.RUNTIME)
    before = [(10, 250, "cuLibraryLoadData", Category.RUNTIME), (15, 240, "Module loading", Category.OVERHEAD)]
    after = [(at + 400, lasts, name, kind) for at, lasts, name, kind in before]
    device = [(310.0, 40.0, "gemm", KERNEL), (900.0, 40.0, "softmax", KERNEL)]

    early = make(Trace(device=device, host=[launch, *before]))
    late = make(Trace(device=device, host=[launch, *after]))
    unknown = make(Trace(device=device, host=after))  # launches are not recorded

    assert states("recompilation", early, late, unknown) == ["clear", "fires", "fires"]


def test_fragments_on_a_device_of_unknown_size_are_not_called_healthy(make: Make) -> None:
    dcgm = {"DCGM_FI_DEV_FB_USED": [9000.0], "DCGM_FI_DEV_FB_FREE": [400.0]}
    assert states("fragmentation", make(Trace(samples=HELD)), make(Trace(samples=HELD | dcgm))) == [
        "not_enough_data",
        "fires",
    ]
    reported = Readings(
        name="gpu0_memory_total_bytes",
        role="runner",
        rank=0,
        step=np.array([-1]),
        time=np.array([1]),
        value=np.array([9.9e9]),
    )
    told = Evidence(recorded=make(Trace(samples=HELD)).recorded, readings=(reported,))
    assert states("fragmentation", told) == ["fires"]


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
    few, many = (
        "1 events were left out: a time or a name is missing or is none.",
        "5 rows were left out: a time is none.",
    )
    whole = make(Trace(device=kernels(200, length=1, every=2), notes=[few, "nsys: the driver is old"]))
    assert states("capture_incomplete", whole, make(Trace(device=BUSY, notes=[many]))) == ["clear", "fires"]
    assert finding_of("capture_incomplete", rule, NOTHING).state == "not_enough_data"


def _tested() -> Iterator[str]:
    yield from test_diagnosis.CASES
    yield from CASES
    yield "capture_incomplete"
    yield "collective_mismatch"  # tests/profiling/diagnosis/test_flights.py


def test_every_rule_has_its_cases() -> None:
    assert set(_tested()) == set(rules())


def test_copies_alone_say_nothing_of_an_idle_device(make: Make) -> None:
    copies = make(Trace(device=[(0, 1, "Memcpy HtoD", Category.COPY), (800, 1, "Memcpy DtoH", Category.COPY)]))
    for key in ("device_idle", "long_gap"):
        assert finding_of(key, rules()[key], copies).state == "not_enough_data"


def test_a_gap_before_the_steps_that_repeat_is_not_one_of_them(make: Make) -> None:
    device: list[Event] = [(0, 1, "warm_up", KERNEL)]
    for i in range(6):
        device += [(900 + 10 * i + at, 2, name, KERNEL) for at, name in ((0, "embed"), (3, "gemm"), (6, "head"))]
    found = finding_of("long_gap", rules()["long_gap"], make(Trace(device=device)))
    assert (found.state, found.value) == ("clear", "2 ms")


def test_a_cpu_that_waits_for_the_device_is_not_what_binds_it(make: Make) -> None:
    launches = [(i * 100 - 0.015, 0.010) for i in range(10)]
    waits: list[Event] = [(i * 100 + 40, 59, "$api.py:3154 block_until_ready", Category.PYTHON) for i in range(10)]
    rows = make(Trace(device=kernels(10, length=40, every=100), launches=launches, host=waits))
    found = finding_of("cpu_bound", rules()["cpu_bound"], rows)
    assert (found.state, found.value) == ("clear", "1 %")
    idle = finding_of("device_idle", rules()["device_idle"], rows).sentence()
    assert "most of the rest is synchronisation" in idle


def test_a_device_is_not_called_idle_by_collectives_alone_nor_by_a_moment(make: Make) -> None:
    of_collectives = make(Trace(device=[(i * 100, 3, "ncclDevKernel_Generic", TALK) for i in range(9)]))
    moment = make(Trace(device=kernels(2, length=0.001, every=0.004), window=0.009))
    longer = make(Trace(device=kernels(2, length=0.001, every=0.01), window=0.02))

    assert states("device_idle", of_collectives, moment, longer) == ["not_enough_data", "not_enough_data", "fires"]
