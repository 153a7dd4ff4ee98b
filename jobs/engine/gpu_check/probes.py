"""The single checks of `jobs.engine.gpu_check.check`, each run as `python -m jobs.engine.gpu_check.probes NAME` in its
own process.

A probe returns what it found, raises if what is there does not work, and raises Absent if it is not installed. Heavy
libraries are imported inside the probes: on the machines this is for, any of them may be missing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
MODEL = Path(__file__).resolve().parents[1] / "bundled" / "tiny-word-problems"
MATRIX = 8192
REPEATS = 20


class Absent(RuntimeError):
    """What is to be checked is not installed."""


def require(*packages: str) -> None:
    """Raise Absent if one of the packages is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise Absent(f"{', '.join(missing)} not installed")


def output_of(*command: str) -> str:
    """Return what a program prints; Absent if there is no such program."""
    if shutil.which(command[0]) is None:
        raise Absent(f"{command[0]} not found")
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def driver() -> dict[str, object]:
    """Ask the driver for its version and the GPUs: name, memory in MiB, compute capability.

    Raises: RuntimeError, with both versions, for a driver that is too old for the CUDA of the lock.
    """
    if not Path("/proc/driver/nvidia/version").exists():
        raise Absent("no NVIDIA driver is loaded")
    fields = "driver_version,name,memory.total,compute_cap"
    rows = output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits").splitlines()
    cells = [[cell.strip() for cell in row.split(",")] for row in rows]
    if not cells:
        raise RuntimeError("the driver is loaded but shows no GPU")
    gpus = [{"name": name, "memory_mib": int(memory), "capability": cap} for _, name, memory, cap in cells]
    preflight = _preflight()
    version, runs, needed = preflight.driver_version(cells[0][0]), preflight.driver_cuda(), preflight.locked_cuda()
    if too_old := preflight.driver_problems(version, runs, needed):
        raise RuntimeError(too_old[0])
    return {"driver_version": cells[0][0], "runs_cuda": runs, "locked_cuda": needed, "gpus": gpus}


def _preflight() -> ModuleType:
    """Return requirements/preflight.py, which is no package: it also runs where nothing is installed."""
    spec = spec_from_file_location("preflight", ROOT / "requirements" / "preflight.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its named tuple asks for its module
    spec.loader.exec_module(module)
    return module


def torch() -> dict[str, object]:
    """Return torch's builds; it must see the GPUs if a driver is loaded."""
    require("torch")
    import torch

    facts = {"version": torch.__version__, "cuda": torch.version.cuda, "num_gpus": torch.cuda.device_count()}
    if Path("/proc/driver/nvidia/version").exists() and torch.version.cuda and not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} is built for CUDA {torch.version.cuda} but sees no GPU")
    if not torch.version.cuda:
        raise Absent(f"torch {torch.__version__} is a build without CUDA")
    return facts


def matmul() -> dict[str, object]:
    """Multiply matrices in bfloat16 and compare a corner with the CPU; returns TFLOP/s (2 n^3 a product)."""
    import torch

    a, b = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = a @ b
    expected = a[:8].float().cpu() @ b[:, :8].float().cpu()
    difference = (product[:8, :8].float().cpu() - expected).abs().max().item()
    if difference > 0.02 * expected.abs().max().item():
        raise RuntimeError(f"the GPU's product differs from the CPU's by {difference}")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(REPEATS):
        product = a @ b
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / REPEATS
    return {"size": MATRIX, "tflops_bfloat16": round(2 * MATRIX**3 / seconds / 1e12, 1), "max_difference": difference}


def _join_alone(backend: str) -> None:
    """Join a process group of one."""
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group(backend, rank=0, world_size=1)


def nccl() -> dict[str, object]:
    """All-reduce 64 MiB over a group of one: NCCL loads, makes a communicator and runs its kernel."""
    import torch
    import torch.distributed as dist

    _join_alone("nccl")
    values = torch.ones(16 << 20, device="cuda")
    dist.all_reduce(values)
    torch.cuda.synchronize()
    if values.sum().item() != values.numel():
        raise RuntimeError("the all-reduce of a group of one changed the values")
    dist.destroy_process_group()
    return {"version": ".".join(map(str, torch.cuda.nccl.version())), "world_size": 1}


def deepspeed() -> dict[str, object]:
    """Take one ZeRO-2 step of a small model; its loss on the same batch must fall."""
    require("deepspeed")
    import deepspeed
    import torch

    _join_alone("nccl")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    config = {
        "train_micro_batch_size_per_gpu": 32,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    batch, target = torch.randn(32, 256, device="cuda"), torch.randn(32, 1, device="cuda")
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.mse_loss(engine(batch), target)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    if not losses[1] < losses[0]:
        raise RuntimeError(f"the loss did not fall: {losses}")
    return {"version": deepspeed.__version__, "losses": losses}


def vllm() -> dict[str, object]:
    """Generate greedily with the bundled model; the answer must be the same twice."""
    require("vllm")
    import vllm

    model = vllm.LLM(str(MODEL), gpu_memory_utilization=0.2, enforce_eager=True, max_model_len=256)
    greedy = vllm.SamplingParams(temperature=0.0, max_tokens=24)
    prompt = "<|user|>Ana picks 12 pens in the morning and 7 in the evening. How many pens in total?<|assistant|>"
    first, second = (model.generate([prompt], greedy)[0].outputs[0] for _ in range(2))
    if not first.token_ids or first.token_ids != second.token_ids:
        raise RuntimeError(f"two greedy answers differ: {first.text!r}, {second.text!r}")
    return {"version": vllm.__version__, "answer": first.text}


def ray() -> dict[str, object]:
    """Return Ray's version."""
    require("ray")
    import ray

    return {"version": ray.__version__}


def nsys() -> dict[str, object]:
    """Record a small report with Nsight Systems; return its version and the report's size.

    Sampling is off: without hardware counters (virtual machines) it would never end.
    """
    version = output_of("nsys", "--version")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "probe.nsys-rep"
        output_of("nsys", "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(report), "true")
        if not report.exists() or not report.stat().st_size:
            raise RuntimeError(
                "nsys wrote no report: its importer is missing beside it (docs/operate/install.md says how to link it)"
            )
        return {"version": version, "path": shutil.which("nsys"), "report_bytes": report.stat().st_size}


PROBES: dict[str, Callable[[], dict[str, object]]] = {
    probe.__name__: probe for probe in (driver, torch, matmul, nccl, deepspeed, vllm, ray, nsys)
}


def main() -> int:
    """Run the probe that was named; the last line printed is its JSON."""
    try:
        facts = PROBES[sys.argv[1]]()
    except Absent as error:
        print(error)
        return 3
    print("\n" + json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
