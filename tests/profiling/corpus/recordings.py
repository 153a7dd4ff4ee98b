"""Programs of many kinds with a device that is well fed, and what starves it. Sizes and numbers vary by seed."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.profiling.corpus.program import A100, H100, Program

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, true>"
FLASH_BACK = "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 64, 128, 8>>"
BF16 = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8"
NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
TF32 = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_execute_kernel__5x_cudnn"
SGEMM = "ampere_sgemm_128x64_tn"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1"
TENSILE_SLOW = "Cijk_Ailk_Bljk_SB_MT128x128x8_SE_K1_TT8_8"
CK_FMHA = "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync>>"


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is wrong with a program; nothing by default. Times in us, shares of a step where it says so."""

    load: float = 0.0  # share of a step in the loader
    items: bool = False  # a number is read after each layer, and then the CPU thinks
    compiles: bool = False  # each step compiles
    slow_products: bool = False
    same_stream: bool = False  # collectives take turns with kernels
    unpinned: bool = False
    tiny: bool = False  # kernels of 2 us
    python: float = 0.0  # share of a step in a function of the program
    collects: float = 0.0  # share of a step in the garbage collector
    pause: float = 0.0  # once
    flushes: float = 0.0  # share of a step in the profiler
    late: float = 0.0  # share of a step by which collectives begin early and wait


WELL = Faults()


@dataclass(frozen=True, kw_only=True)
class Names:
    """Kernels of a kind of device and precision."""

    product: str
    attention: str
    back: str


CUDA = Names(product=BF16, attention=FLASH, back=FLASH_BACK)
HOPPER = Names(product=NVJET, attention="void cutlass::device_kernel<flash::FlashAttnFwdSm90>", back=FLASH_BACK)
VISION = Names(product=TF32, attention=TF32, back=TF32)
ROCM = Names(product=TENSILE, attention=CK_FMHA, back=CK_FMHA)


def training(
    rng: random.Random,
    *,
    faults: Faults = WELL,
    names: Names = CUDA,
    device: Mapping[str, Any] = A100,
    calls: str = "cuda",
    stacks: bool = False,
    ranks: int = 1,
    rank: int = 0,
    is_marked: bool = True,
    types: tuple[str, ...] = (),
) -> Program:
    """Return steps of training with an overlapped all-reduce, a last synchronisation, and whatever is wrong."""
    program = Program(device=device, calls=calls, stacks=stacks, rank=rank, world_size=ranks)
    slow = TENSILE_SLOW if calls == "hip" else SGEMM
    names = replace(names, product=slow, attention=slow, back=slow) if faults.slow_products else names
    layers, product = rng.randint(5, 12), 2.0 if faults.tiny else rng.uniform(150, 500)
    step = layers * product * 3.4
    if is_marked and rng.random() < 0.5:  # the recording was on for a while before the first step
        with program.span("profiler.start"):
            program.work(rng.uniform(5_000, 60_000))
    reads_loss = is_marked and rng.random() < 0.5
    with program.frame("train.py(1): <module>"):
        for number in range(rng.randint(3, 5)):
            with program.span(f"ProfilerStep#{number + 3}") if is_marked else program.frame("train.py(9): step"):
                _prepare(program, faults, step, rng)
                program.copy(4, 900 if faults.unpinned else 12, what=_copy_of(faults), stream=7)
                for part, times in (("forward", 1), ("backward", 2)):
                    program.tid = 12 if part == "backward" and calls == "cuda" else 11
                    for _layer in range(layers):
                        _layer_of(program, faults, names, product, times, types, talks=part == "backward" and ranks > 1)
                program.tid = 11
                program.wait_for(7, 20)
                with program.operator("Optimizer.step#AdamW.step"):
                    program.launch("void multi_tensor_apply_kernel<AdamFunctor<float>>", product)
                if reads_loss:
                    program.item()
                if faults.flushes:
                    program.sync()
                    with program.span("CUPTI: Buffer Flush", "overhead"):
                        program.work(step * faults.flushes)
                if number == 1 and faults.pause:
                    program.sync()
                    with program.frame("train.py(70): save"):
                        program.work(faults.pause)
    program.sync()
    return program


def _copy_of(faults: Faults) -> str:
    return "HtoD (Pageable -> Device)" if faults.unpinned else "HtoD (Pinned -> Device)"


def _prepare(program: Program, faults: Faults, step: float, rng: random.Random) -> None:
    """What happens before a step: next to nothing, or what is wrong."""
    with program.span(LOADER):
        program.work(rng.uniform(10, 60))
    if faults.load or faults.python or faults.collects:
        program.sync()  # the queue is empty, so what follows is time lost
    if faults.load:
        with program.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            program.work(step * faults.load / (1 - faults.load))
    if faults.python:
        with program.frame("train.py(30): prepare"), program.frame("data/augment.py(12): crop"):
            program.work(max(step * faults.python / (1 - faults.python), 1500))
    if faults.collects:
        with program.span("Python GC", "python_gc"):
            program.work(step * faults.collects)
    if faults.compiles:
        with (
            program.span("_compile.compile_inner (dynamo_timed)"),
            program.frame("torch/_dynamo/convert_frame.py(500): _compile"),
        ):
            program.work(step * 0.3)


def _layer_of(
    program: Program, faults: Faults, names: Names, product: float, times: int, types: tuple[str, ...], *, talks: bool
) -> None:
    """One layer: products, attention, sums, and with `talks` its share of the all-reduce."""
    for _ in range(times):
        with program.operator("aten::mm", *types):
            program.launch(names.product, product)
    with program.operator("aten::scaled_dot_product_attention", *types):
        program.launch(names.attention if times == 1 else names.back, product * 0.5)
    with program.operator("aten::add_", *types):
        program.launch(ADD, product * 0.15)
    if faults.items:
        program.item()
        program.work(product)
    if talks:
        lasts = product * (0.9 + 10 * faults.late)
        stream = 7 if faults.same_stream else 20
        program.wait_for(stream, 7)
        with program.operator("c10d::allreduce_"):
            program.launch(NCCL, lasts, stream=stream)


def sharded(rng: random.Random) -> Program:
    """Return steps of FSDP whose CPU runs ahead: gathers are prefetched on a stream of their own; it ends unawaited."""
    program = Program(device=H100, world_size=8, rank=rng.randrange(8))
    layers, product = rng.randint(6, 10), rng.uniform(600, 1200)
    for number in range(rng.randint(3, 5)):
        with program.span(f"ProfilerStep#{number + 9}"):
            for _ in range(layers):
                with program.operator("c10d::_allgather_base_"):
                    program.launch(GATHER, product * 0.6, stream=22)
                for _ in range(3):
                    with program.operator("aten::mm"):
                        program.launch(NVJET, product)
    program.sync()
    return program


def diffusion(rng: random.Random, *, faults: Faults = WELL, is_compiled: bool = False) -> Program:
    """Return inference without steps, with stacks: a pool sleeps, frames of torch, one wait and copy at the end."""
    program = Program(device=H100, stacks=True)
    lasts = 1.5 if faults.tiny else rng.uniform(80, 200)
    begin = program.now
    with program.frame("generate.py(1): <module>"), program.frame("torch/_compile.py(23): inner"):
        for _step in range(rng.randint(6, 12)):
            if faults.python:
                program.sync()
                with program.frame("app/schedule.py(40): timesteps"):
                    program.work(rng.uniform(4000, 8000))
            for layer in range(rng.randint(8, 12)):
                with _region(program, is_compiled, layer):
                    program.launch(NVJET, lasts)
                    program.launch("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_kernel0_0", lasts * 2)
                    program.launch("triton_poi_fused_addmm_gelu_view_15" if is_compiled else ADD, lasts * 0.5)
                if faults.items:
                    program.item()
                    program.work(lasts * 3)
        program.copy(3, 300, what="DtoH (Device -> Pageable)")
        program.sync(what="StreamSynchronize")
    for name in ("threading.py(1012): run", "torch/_inductor/compile_worker/subproc_pool.py(180): _read_thread"):
        program.add("python_function", name, begin, program.now - begin, tid=99)
    return program


@contextmanager
def _region(program: Program, is_compiled: bool, layer: int) -> Iterator[None]:
    if not is_compiled:
        with program.operator("aten::linear"):
            yield
        return
    with program.span("TorchDynamo Cache Lookup"):
        program.work(3)
    region, call = program.span(f"Torch-Compiled Region: {layer}/0"), program.span("## Call CompiledFxGraph fhq7kt ##")
    with region, program.operator("CompiledFunction"), call:
        yield


def serving(rng: random.Random, *, faults: Faults = WELL, tail: bool = False) -> Program:
    """Return an engine that decodes with graphs, its CPU one pass ahead; `tail`: the batch runs empty."""
    program = Program(device=H100)
    layers, lasts, requests = rng.randint(12, 24), rng.uniform(30, 80), rng.choice((16, 32, 64))
    before, passes = 0.0, rng.randint(12, 24)
    for number in range(passes):
        running = requests if not tail or number < passes // 6 else 2
        kernels = [(NVJET, lasts), ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<128>", lasts * 0.4)] * layers
        with program.span(f"execute_context_0(0)_generation_{running}({running})"):
            program.work(80)
            if faults.tiny:
                for name, _us in kernels:
                    program.launch(name, 1.5)
            else:
                program.graph(kernels)
            program.copy(0, 1.5, what="DtoH (Device -> Pinned)")
        done = program.done()
        program.sync(what="EventSynchronize", until=done if faults.items else before)
        before = done
        program.work(lasts * layers * 0.6 if faults.items else 120)
    program.sync()
    return program


def on_cpu(rng: random.Random, *, faults: Faults = WELL) -> Program:
    """Return training on a CPU: operators are the work; a collective of gloo, a loader."""
    program = Program(device={"name": "", "totalGlobalMem": 0})
    for number in range(rng.randint(3, 5)):
        with program.span(f"ProfilerStep#{number}"):
            with program.span(LOADER):
                program.work(rng.uniform(20, 80) + 30_000 * faults.load)
            for _ in range(rng.randint(10, 20)):
                with program.operator("aten::addmm"):
                    program.work(rng.uniform(800, 2000))
            with program.span("gloo:all_reduce"):
                program.work(300)
    return program
