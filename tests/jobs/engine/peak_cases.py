"""Cases in which the engine's own peak memory is held against the plan: a spec each, and what was found.

`tiny` is the bundled model, on which the constants of a process on CPU were measured (jobs.planner.memory.cpu);
`small` and `wide` are made on the spot, with random weights.
"""

import importlib.util
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.teacher_files import teacher_folder
from jobs.planner.estimate import estimate
from jobs.planner.memory.cpu import host_fleet
from jobs.planner.read.context import Models
from jobs.planner.read.spec import read_job
from jobs.planner.result import Estimate
from jobs.planner.shapes.model_shape import ModelShape, read_shape

GOAL = 0.15
PHASES = {
    "policy": ("rollout", "old_logprobs", "reference", "update"),
    "reference": ("reference",),
    "teacher": ("reference",),
    "critic": ("old_logprobs", "update"),
}
_MEMORY = 16 << 30
_MODELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "small": (
        "Llama",
        {
            "hidden_size": 512,
            "num_hidden_layers": 8,
            "intermediate_size": 1408,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 8192,
            "tie_word_embeddings": False,
        },
    ),
    "wide": (
        "Qwen2",
        {
            "hidden_size": 384,
            "num_hidden_layers": 10,
            "intermediate_size": 1536,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "vocab_size": 40_000,
            "tie_word_embeddings": True,
        },
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: which model, algorithm, layout of roles, ZeRO stage, precision, recomputation, rows and tokens of a
    micro-batch, the rank of adapters (0: all weights are trained), whether the base is in 4 bits, and the teacher's
    model."""

    model: str
    algorithm: str = "sft"
    layout: str = "split"
    stage: int = 2
    precision: str = "float32"
    recomputes: bool = False
    rows: int = 2
    micros: int = 2
    tokens: int = 256
    ranks: int = 2
    lora: int = 0
    has_four_bits: bool = False
    teacher: str = ""

    @property
    def name(self) -> str:
        """What tables call it."""
        ends = "-recompute" * self.recomputes + f"-{self.layout}" * (self.layout != "split")
        ends += f"-lora{self.lora}" * bool(self.lora) + "-nf4" * self.has_four_bits
        shape = f"{self.micros}x{self.rows}x{self.tokens}"
        return f"{self.model}-{self.algorithm}-zero{self.stage}-{self.precision}-{shape}{ends}"

    def spec(self, folder: Path) -> dict[str, Any]:
        """Return the spec, its model in a folder below `folder` if it is not the bundled one."""
        count = self.ranks * self.rows * self.micros
        knobs: dict[str, Any] = {
            "memory.zero_stage": str(self.stage),
            "memory.precision": self.precision,
            "memory.gradient_checkpointing": self.recomputes,
            "train.micro_batch_size": self.rows,
        }
        if not is_in(self.algorithm, "rl"):
            knobs |= {"train.batch_size": count, "train.max_sequence_tokens": self.tokens}
        else:
            knobs |= {"rollout.prompts_per_step": count // 2, "rollout.samples_per_prompt": 2}
            knobs |= {"rollout.max_prompt_tokens": self.tokens // 2, "rollout.max_new_tokens": self.tokens // 2}
            knobs |= {"train.updates_per_rollout": 1, "rollout.ignore_eos": True}
        hardware = {"policy_ranks": self.ranks, "layout": self.layout}
        spec = {"algorithm": self.algorithm, "hardware": hardware, "knobs": knobs}
        if self.lora:
            knobs |= {"lora.rank": self.lora, "quantization.load_in_4bit": self.has_four_bits}
        if self.teacher:
            knobs["models.teacher_path"] = str(folder / self.teacher)
        spec["profile"] = {"nsys_ready": "off", "marks": "memory"}
        if self.model in _MODELS:
            spec["model"] = {"kind": "path", "id": str(folder / self.model)}
        return spec


LONE = (
    Case(model="small", algorithm="grpo", layout="colocated", ranks=1, lora=32),
    Case(model="small", algorithm="ppo", layout="shared", ranks=1),
    Case(model="small", algorithm="distill", ranks=1, teacher="wide"),
    *(Case(model="small", algorithm=algorithm, layout="shared", ranks=1) for algorithm in ("dpo", "kto")),
    *(Case(model="small", algorithm="grpo", layout=layout, ranks=1) for layout in ("split", "shared", "colocated")),
    Case(model="wide", algorithm="grpo", ranks=1, precision="bfloat16", rows=4, tokens=192),
    *(Case(model="small", algorithm="grpo", layout="shared", ranks=1, lora=rank) for rank in (4, 32, 128)),
    Case(model="small", algorithm="grpo", layout="shared", ranks=1, lora=32, stage=3),
    Case(model="small", algorithm="grpo", layout="shared", ranks=1, lora=32, precision="bfloat16"),
    Case(model="small", algorithm="grpo", layout="shared", ranks=1, lora=32, stage=0),
    Case(model="small", algorithm="sft", ranks=1, lora=8),
    Case(model="small", algorithm="sft", ranks=1, lora=128, precision="bfloat16", stage=3),
    Case(model="wide", algorithm="sft", ranks=1, lora=32, recomputes=True),
    Case(model="small", algorithm="dpo", layout="shared", ranks=1, lora=16),
    Case(model="wide", algorithm="dpo", ranks=1, lora=64, precision="bfloat16", rows=1),
    Case(model="small", teacher="wide", algorithm="distill", layout="shared", ranks=1),
    *(
        Case(model="small", teacher="wide", algorithm="distill_on_policy", layout=kind, ranks=1)
        for kind in ("shared", "split", "colocated")
    ),
    Case(model="wide", teacher="wide", algorithm="distill", layout="shared", ranks=1, precision="bfloat16"),
    Case(model="small", teacher="wide", algorithm="distill", layout="shared", ranks=1, lora=32),
    Case(model="small", algorithm="ppo", ranks=1),
    Case(model="small", algorithm="ppo", ranks=1, precision="bfloat16", stage=3),
    Case(model="small", algorithm="ppo", layout="shared", ranks=1, precision="bfloat16"),
    Case(model="wide", algorithm="ppo", layout="colocated", ranks=1),
)
"""Ranks that are alone, each with what it holds of the others in its layout: measured without Ray by
tests.jobs.engine.lone_rank, in `make bench-planner`."""
if importlib.util.find_spec("bitsandbytes"):
    LONE = (
        *LONE,
        Case(model="wide", ranks=1, lora=32, has_four_bits=True),
        Case(model="small", ranks=1, lora=32, has_four_bits=True, precision="bfloat16", recomputes=True),
        Case(model="wide", algorithm="grpo", layout="colocated", ranks=1, lora=8, has_four_bits=True),
    )

SHORT = (Case(model="tiny", stage=3, precision="bfloat16"),)
LONG = (
    *(Case(model="tiny", stage=stage, precision=kind) for stage in (0, 2, 3) for kind in ("float32", "bfloat16")),
    *(Case(model="small", stage=stage, precision=kind) for stage in (0, 2, 3) for kind in ("float32", "bfloat16")),
    Case(model="tiny", algorithm="grpo"),
    Case(model="small", recomputes=True),
    *(Case(model=model, algorithm="rm", stage=stage) for model, stage in (("small", 2), ("wide", 3))),
    Case(model="small", algorithm="grpo"),
    *(
        Case(model=model, algorithm="grpo", layout=kind)
        for model in ("tiny", "small")
        for kind in ("shared", "colocated")
    ),
    Case(model="wide", stage=1),
    Case(model="wide", stage=2, micros=1, tokens=384),
    Case(model="wide", stage=3, recomputes=True, tokens=384),
    Case(model="wide", stage=0, precision="bfloat16", rows=1, micros=4, tokens=384),
    Case(model="wide", algorithm="grpo", stage=2, precision="bfloat16", rows=4, tokens=192),
    Case(model="wide", algorithm="grpo", stage=0, recomputes=True, micros=1, rows=3),
    Case(model="wide", algorithm="grpo", stage=3, tokens=128),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """Bytes of a role in a phase above what it held before its model: planned, and measured."""

    case: str
    role: str
    phase: str
    planned: int
    measured: int

    @property
    def error(self) -> float:
        """Planned against measured."""
        return self.planned / self.measured - 1


def write_cases(cases: Iterable[Case], folder: Path) -> None:
    """Make the models that the cases need, and `cases.json` for tests.jobs.engine.peaks."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = tuple(cases)
    for model in {name for case in cases for name in (case.model, case.teacher)} & _MODELS.keys():
        _make_model(model, folder / model)
    (folder / "cases.json").write_text(json.dumps({case.name: case.spec(folder) for case in cases}))


def _make_model(name: str, folder: Path) -> None:
    import torch
    import transformers

    kind, values = _MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**values, max_position_embeddings=2048)
    torch.manual_seed(0)
    getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(model_folder(parse_spec({}).model) / file, folder / file)


def planned(spec: RunSpec) -> Estimate:
    """Return the estimate of a spec on this kind of machine's CPU."""
    models = Models(
        policy=_shape(model_folder(spec.model)),
        teacher=_shape(teacher_folder(spec)) if spec.needs("teacher") else None,
    )
    return estimate(read_job(spec, models, host_fleet(spec.num_workers, _MEMORY)))


def _shape(folder: Path) -> ModelShape:
    return read_shape(json.loads((folder / "config.json").read_text(encoding="utf-8")), name=folder.name)


def compare(folder: Path) -> list[PeakRow]:
    """Return every role's phases of every case in `found.json`."""
    cases = json.loads((folder / "cases.json").read_text())
    found = []
    for name, roles in json.loads((folder / "found.json").read_text()).items():
        answer = planned(parse_spec(cases[name]))
        for role, phases in PHASES.items():
            for phase in phases:
                if role in roles and phase in roles[role]["peaks"] and _is_planned(answer, role, phase):
                    measured = roles[role]["peaks"][phase] - roles[role]["baseline"]
                    found.append(
                        PeakRow(case=name, role=role, phase=phase, planned=_of(answer, role, phase), measured=measured)
                    )
    return found


def _is_planned(answer: Estimate, role: str, phase: str) -> bool:
    return any(each.phase == phase for pool in answer.pools if pool.name == role for each in pool.phases)


def _of(answer: Estimate, role: str, phase: str) -> int:
    """Return the bytes of a process in a phase: of the role of that name and of all that it holds beside it."""
    pools = [pool for pool in answer.pools if pool.name == role]
    return max(each.memory.total for pool in pools for each in pool.phases if each.phase == phase)
