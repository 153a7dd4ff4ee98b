"""TRL as a child process in its own environment, and its run as the comparison wants it."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.engine.comparison import SideRun, StepRecord
from tests.bench.engine.meter import ProcessMeter
from tests.bench.engine.side import SideFailed, side_run
from tests.bench.engine.workloads import Prepared, TrlSetting, Workload
from tests.bench.stage import ROOT

PROGRAM = Path(__file__).with_name("trl_program.py")
RUN_SECONDS = 3600.0
GAP = "sampling/sampling_logp_difference/max"
"""What TRL logs of it where it samples with vLLM."""


def run_trl(
    python: str, workload: Workload, setting: TrlSetting, prepared: Prepared, folder: Path, *, num_steps: int
) -> SideRun:
    """Train `num_steps` steps with TRL in `folder`, and return what was measured.

    Raises: SideFailed, with the last lines of its output.
    """
    folder.mkdir(parents=True)
    command = _command(python, workload, setting, prepared, folder, num_steps)
    env = _environment(setting)
    begin = time.time()
    with (folder / "output.log").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out)
        try:
            with ProcessMeter(lambda: [process.pid]) as meter:
                code = process.wait(RUN_SECONDS)
        finally:
            process.kill()
            process.wait()
    lines = [read_lines(folder / f"steps-{rank}.jsonl") for rank in range(setting.processes)]
    if code or not lines[0]:
        raise SideFailed((folder / "output.log").read_text(errors="replace"))
    began = next(line["end"] for line in lines[0] if line["kind"] == "begin")
    steps = steps_of(lines, sequences=workload.sequences)
    return side_run(f"TRL, {setting.name}", steps, meter, cores=os.cpu_count() or 1, ready_seconds=began - begin)


def _command(
    python: str, workload: Workload, setting: TrlSetting, prepared: Prepared, folder: Path, num_steps: int
) -> list[str]:
    rows = folder / "rows.json"
    rows.write_text(json.dumps(prepared.rows))
    settings = {
        "algorithm": workload.algorithm,
        "model": str(prepared.model),
        "rows": str(rows),
        "folder": str(folder),
        "threads": _threads(setting),
        "reward": workload.reward,
        "config": {**workload.config, **setting.config, "max_steps": num_steps, "seed": prepared.seed},
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=1))
    launcher = [python, str(PROGRAM)]
    if setting.processes > 1:
        launcher = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={setting.processes}"]
        launcher += [str(PROGRAM)]
    return [*launcher, str(folder / "settings.json")]


def _threads(setting: TrlSetting) -> int:
    return max(1, (os.cpu_count() or 1) // setting.processes)


def _environment(setting: TrlSetting) -> dict[str, str]:
    own = {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": str(_threads(setting)),
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    return {**os.environ, **own, **(setting.env or {})}


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return what a process wrote, without a last line that is not whole; [] if it wrote nothing."""
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def steps_of(lines: Sequence[Sequence[Mapping[str, Any]]], *, sequences: int) -> list[StepRecord]:
    """Return the steps of all processes together: the end is that of the first, the work is everyone's.

    In fine-tuning, where TRL does not count them, a step has `sequences`.
    """
    first = lines[0]
    ends = [line for line in first if line["kind"] == "step"]
    logs = {line["step"]: line["values"] for line in first if line["kind"] == "log" and "loss" in line["values"]}
    rollouts = list(zip(*([line for line in each if line["kind"] == "rollout"] for each in lines), strict=False))
    records = []
    for number, line in enumerate(ends):
        step, end = line["step"], line["end"]
        if rollouts:
            records.append(_reinforced(line, rollouts[number], gap=logs.get(step, {}).get(GAP)))
        else:
            tokens = round(logs[step]["num_tokens"] - logs.get(step - 1, {"num_tokens": 0.0})["num_tokens"])
            records.append(StepRecord(step=step, end=end, sequences=sequences, tokens=tokens, loss=logs[step]["loss"]))
    return records


def _reinforced(line: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], *, gap: float | None) -> StepRecord:
    lengths = [length for part in parts for length in part["lengths"]]
    rewards = [reward for part in parts for reward in part["rewards"]]
    prompts = {prompt for part in parts for prompt in part["prompts"]}
    return StepRecord(
        step=line["step"],
        end=line["end"],
        sequences=len(lengths),
        tokens=sum(lengths),
        prompts=digest(prompts),
        reward=sum(rewards) / len(rewards),
        gap=gap,
        shortest=min(lengths),
        longest=max(lengths),
    )


def digest(prompts: set[str]) -> str:
    """Return a short text that is the same for the same prompts."""
    return hashlib.sha256("\0".join(sorted(prompts)).encode()).hexdigest()[:12]
