"""Real, public logs of trainers (tests/data/trainer_logs), read as a run's: their steps, names and last values."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch.utils.tensorboard import SummaryWriter
from transformers.integrations.integration_utils import rewrite_logs

from jobs.adapters.adapter import adapter
from jobs.catalog.metric import metrics
from jobs.catalog.spec.parse import parse_spec
from profiling.events import EVENTS, to_line

LOGS = Path(__file__).parents[3] / "data" / "trainer_logs"
SECOND = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class RealLog:
    """A file, whose it is, and what has to be read of it: all steps, the first step's values, and the last one's."""

    file: str
    trainer: str
    algorithm: str
    steps: tuple[int, ...]
    first: Mapping[str, float]
    last: Mapping[str, float]


REAL_LOGS = (
    RealLog(
        file="verl_grpo_gsm8k_trtllm_15steps.log.gz",
        trainer="verl",
        algorithm="grpo",
        steps=tuple(range(15)),
        first={"eval/reward": (0.23426838514025777 + 0.505) / 2},
        last={
            "policy/entropy": 0.145470529794693,
            "reward/mean": 0.8115234375,
            "policy/learning_rate": 1e-6,
            "device_memory_peak_bytes": 41.42605447769165 * 2**30,
        },
    ),
    RealLog(
        file="verl_grpo_gsm8k_trtllm_98steps.log.gz",
        trainer="verl",
        algorithm="grpo",
        steps=tuple(range(98)),
        first={"eval/reward": (0.2403335860500379 + 0.515) / 2},
        last={"policy/entropy": 0.04624193534255028},
    ),
    RealLog(
        file="verl_game2048_core_dumped.log",
        trainer="verl",
        algorithm="grpo",
        steps=(0,),
        first={"eval/reward": 1.0, "val-core/game2048/acc/mean@1": 1.0},
        last={"val-aux/num_turns/mean": 2.0},
    ),
    RealLog(
        file="trl_kto_state.json",
        trainer="trl",
        algorithm="kto",
        steps=(1, 10, 20, 1000),
        first={"loss/labels": 0.5, "labels/margin": 0.0},
        last={
            "loss/labels": 0.0476,
            "labels/margin": 8.663213729858398,
            "labels/desirable_reward": 2.8167812824249268,
            "policy/grad_norm": 0.1515132635831833,
        },
    ),
    RealLog(
        file="trl_unsloth_grpo_state.json",
        trainer="trl",
        algorithm="grpo",
        steps=(1, 2, 3, 250),
        first={"reward/mean": 0.0, "response/length_mean": 200.0},
        last={
            "loss/policy": 0.0008,
            "reward/mean": 1.3333333730697632,
            "reward/std": 1.29099440574646,
            "kl/reference": 0.020642109215259552,
            "response/length_mean": 176.33334350585938,
            "train/rewards/correctness_reward_func": 1.0,
        },
    ),
)


@pytest.mark.parametrize("log", REAL_LOGS, ids=lambda log: log.file)
def test_a_real_log_is_read(tmp_path: Path, log: RealLog) -> None:
    spec = parse_spec({"trainer": {"name": log.trainer}, "algorithm": log.algorithm})
    put(tmp_path, LOGS / log.file)
    reader = adapter(log.trainer).logs(spec=spec, run_dir=tmp_path)
    assert reader is not None

    events: list[Any] = [one for i in range(5) for one in reader.poll(now_ns=3 * (i + 1) * SECOND)]

    EVENTS.validate_json(b"[" + b",".join(to_line(one) for one in events) + b"]")
    steps = {one["step"]: one["values"] for one in events if one["kind"] == "metric"}
    assert tuple(steps) == log.steps
    for values, wanted in ((steps[log.steps[0]], log.first), (steps[log.steps[-1]], log.last)):
        assert {name: values[name] for name in wanted} == pytest.approx(dict(wanted), rel=1e-6)
    assert [name for name in log.last if name not in metrics()] == [
        name for name in log.last if name.startswith(("val-", "train/rewards/"))
    ]


def put(run_dir: Path, log: Path) -> None:
    """Lay a log where its reader looks; the history of a state as Transformers writes it for TensorBoard."""
    if log.suffix != ".json":
        data = log.read_bytes()
        (run_dir / "log").mkdir()
        (run_dir / "log" / "driver-0.stdout").write_bytes(gzip.decompress(data) if log.suffix == ".gz" else data)
        return
    with SummaryWriter(log_dir=str(run_dir / "tb")) as writer:
        for logged in json.loads(log.read_text(encoding="utf-8"))["log_history"]:
            for tag, value in rewrite_logs(logged).items():
                writer.add_scalar(tag, value, logged["step"])
