"""Logs of other trainers as events. What is read was written by the frameworks' own loggers, in this test."""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from jobs.adapters.adapter import LogReader, adapter
from jobs.adapters.logs.tfevents import EventFile
from jobs.catalog.metric import metrics
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.trainer import trainers
from profiling.events import to_line
from tests.jobs.adapters.logs import frameworks

SECOND = 10**9


def reader(run_dir: Path, trainer: str, algorithm: str, **knobs: Any) -> LogReader:
    (run_dir / "log").mkdir(parents=True, exist_ok=True)
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": algorithm, "knobs": knobs})
    found = adapter(trainer).logs(spec=spec, run_dir=run_dir)
    assert found is not None
    return found


def steps(events: Any) -> dict[int, dict[str, float]]:
    """Return the values by step; every event has to be one that can be shipped."""
    found: dict[int, dict[str, float]] = {}
    for event in events:
        to_line(event)
        assert (event["role"], event["rank"]) == ("driver", 0)
        if event["kind"] != "metric":
            continue
        found.setdefault(event["step"], {}).update({name: float(value) for name, value in event["values"].items()})
    return found


def read(logs: LogReader, *, now: int = SECOND) -> dict[int, dict[str, float]]:
    """Return what is there by now: a step is over once nothing more has come for one look."""
    return steps([*logs.poll(now_ns=now), *logs.poll(now_ns=now + 1)])


def printed(run_dir: Path, text: str) -> None:
    with (run_dir / "log" / "driver-0.stdout").open("a", encoding="utf-8") as file:
        file.write(text)


STATUS: Mapping[str, Any] = {
    "policy_loss": 0.125,
    "actor_lr": 5e-7,
    "ppo_clip_ratio": 0.03,
    "ppo_kl": -1.5e-4,
    "kl": float("nan"),
    "reward": 0.25,
    "rollout/reward_mean": 0.5,
    "response_clip_ratio": 0.0625,
    "truncated": 0.0625,
    "timing/generation": 12.5,
    "timing/step_total": 20.0,
    "score": np.float64(0.75),
    "generated": None,
}


def test_openrlhfs_printed_steps_are_read_through_rays_prefix(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "ppo")
    first = frameworks.through_ray(frameworks.openrlhf_line(1, STATUS), actor="PPOTrainer")
    second = frameworks.openrlhf_line(2, STATUS, trainer="ppo_trainer_async")
    assert first.startswith("\x1b[")
    assert "ip=10.0.0.7" in first

    printed(tmp_path, f"Sample: {{'policy_loss': 9}}\n{first}")
    one = read(logs)
    printed(tmp_path, second[:40])
    none = read(logs)
    printed(tmp_path, second[40:])
    two = read(logs)

    assert none == {}
    assert set(one) == {1}
    assert set(two) == {2}
    for values in (one[1], two[2]):
        assert values["loss/policy"] == 0.125
        assert values["policy/learning_rate"] == 5e-7
        assert values["kl/old_policy"] == -1.5e-4
        assert math.isnan(values["kl/reference"])
        assert values["time/rollout_seconds"] == 12.5
        assert values["time/step_seconds"] == 20.0
        assert values["train/score"] == 0.75


def test_the_clip_ratio_of_ppo_is_not_the_share_of_cut_answers(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "ppo")
    printed(tmp_path, frameworks.openrlhf_line(1, STATUS))

    values = read(logs)[1]

    assert values["policy/clip_fraction"] == 0.03
    assert values["response/truncated_fraction"] == 0.0625
    assert values["train/response_clip_ratio"] == 0.0625, "the second best name keeps its own"
    assert (values["reward/mean"], values["train/reward"]) == (0.5, 0.25)


def test_openrlhfs_evaluations_are_read_off_its_lines_where_its_files_are_on_another_node(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "grpo")
    evaluation = frameworks.openrlhf_evaluation(2, {"eval_math_pass1": 0.25, "eval_code_pass1": 0.75})
    printed(tmp_path, frameworks.openrlhf_line(2, STATUS) + frameworks.through_ray(evaluation, actor="PPOTrainer"))

    values = read(logs)

    assert set(values) == {2}
    assert values[2]["eval/reward"] == 0.5
    assert values[2]["eval/eval_math_pass1"] == 0.25


def test_openrlhfs_evaluations_are_not_told_twice(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "grpo")
    board = frameworks.openrlhf_board(tmp_path / "tb")
    printed(tmp_path, frameworks.openrlhf_evaluation(2, {"eval_math_pass1": 0.25}))

    assert not [one for i in range(3) for one in logs.poll(now_ns=i) if one["kind"] == "metric"]

    board.log_eval(2, {"eval_math_pass1": 0.25})
    board.close()
    assert read(logs)[2]["eval/reward"] == 0.25


def test_openrlhfs_evaluations_come_from_its_tensorboard_files(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "grpo")
    board = frameworks.openrlhf_board(tmp_path / "tb")
    board.log_train(3, {**STATUS, "generated_samples": ("2+2=4", 1.0)})
    board.log_eval(3, {"eval_math_pass1": 0.5, "eval_math_truncated_rate": 0.25, "eval_code_pass1": 0.25})
    board.close()

    assert read(logs) == {
        3: {
            "eval/eval_math_pass1": 0.5,
            "eval/eval_math_truncated_rate": 0.25,
            "eval/eval_code_pass1": 0.25,
            "eval/reward": 0.375,
        }
    }


def test_supervised_training_is_read_from_tensorboard_while_it_is_written(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "sft")
    writer = SummaryWriter(log_dir=str(tmp_path / "tb" / "run"))
    for step in (1, 2):
        for name, value in {"gpt_loss": 2.0 / step, "lr": 1e-5, "grad_norm": 1.5, "loss_mean": 1.0 / step}.items():
            writer.add_scalar(f"train/{name}", value, step, walltime=100.0 + 2.5 * step)
    writer.flush()
    early = steps(logs.poll(now_ns=SECOND))
    later = steps(logs.poll(now_ns=SECOND))
    writer.add_scalar("eval/eval gpt_loss", 0.75, 2)
    writer.close()
    at_last = read(logs)

    rate = pytest.approx(1e-5)
    assert early == {1: {"train/gpt_loss": 2.0, "policy/learning_rate": rate, "policy/grad_norm": 1.5, "loss/sft": 1.0}}
    assert (later[2]["loss/sft"], later[2]["time/step_seconds"]) == (0.5, 2.5)
    assert at_last == {2: {"eval/loss": 0.75}}


def test_pairs_have_their_own_loss(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "dpo")
    writer = SummaryWriter(log_dir=str(tmp_path / "tb" / "run"))
    for name, value in {"train/loss_mean": 0.5, "train/acc_mean": 0.75, "eval/eval_loss": 0.625}.items():
        writer.add_scalar(name, value, 1)
    writer.close()

    assert read(logs) == {1: {"loss/pairs": 0.5, "pairs/accuracy": 0.75, "eval/pairs_loss": 0.625}}


@pytest.mark.parametrize("new_style", [False, True])
def test_any_scalar_of_tensorboard_is_read_at_any_cut(tmp_path: Path, new_style: bool) -> None:
    writer = SummaryWriter(log_dir=str(tmp_path))
    values = [0.0, -1.5, 1e30, float("inf"), float("nan")]
    for step, value in enumerate(values):
        writer.add_scalar("a/ä", value, step * 10**6, walltime=12.5, new_style=new_style, double_precision=new_style)
    writer.add_text("text", "no number", 1)
    writer.add_histogram("histogram", np.arange(10), 1)
    writer.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    whole = path.read_bytes()

    found = []
    growing = tmp_path / "growing"
    file = EventFile(path=growing)
    for end in range(0, len(whole) + 1, 7):
        growing.write_bytes(whole[:end])
        found += list(file.read())
    growing.write_bytes(whole)
    found += list(file.read())

    assert [(s.tag, s.step, s.at) for s in found] == [("a/ä", step * 10**6, 12.5) for step in range(5)]
    assert [str(s.value) for s in found] == [str(float(np.float32(v))) if not new_style else str(v) for v in values]


def test_a_file_that_is_no_event_file_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"\xff" * 1000)
    file = EventFile(path=path)

    assert list(file.read()) == []
    assert list(file.read()) == []


DATA: Mapping[str, Any] = {
    "actor/pg_loss": 0.125,
    "actor/pg_clipfrac": 0.03,
    "response_length/clip_ratio": 0.25,
    "actor/ppo_kl": float("nan"),
    "critic/score/mean": np.float32(0.5),
    "timing_s/gen": 12.5,
    "timing_s/step": 20.0,
    "training/global_step": 1,
    "perf/max_memory_allocated_gb": 1.5,
    "val-core/math/reward/mean@4": 0.5,
    "val-aux/math/reward/mean@2": 0.9,
    "val-aux/openai/gsm8k/reward/mean@1": 0.25,
    "val-core/openai/gsm8k/acc/mean@1": 1.0,
}


def test_verls_file_is_read_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = reader(tmp_path, "verl", "grpo")
    with frameworks.verl_file(tmp_path / "log" / "verl.jsonl", monkeypatch) as file:
        file.log(DATA, 1)
        printed(tmp_path, frameworks.verl_line(1, DATA))
        one = read(logs)
        file.log(DATA, 2)
        two = read(logs, now=100 * SECOND)

    assert (set(one), set(two)) == ({1}, {2})
    values = one[1]
    assert values["loss/policy"] == 0.125
    assert values["policy/clip_fraction"] == 0.03
    assert values["response/truncated_fraction"] == 0.25
    assert values["reward/mean"] == 0.5
    assert math.isnan(values["kl/old_policy"])
    assert (values["time/rollout_seconds"], values["time/step_seconds"]) == (12.5, 20.0)
    assert values["val-core/math/reward/mean@4"] == 0.5
    assert values["eval/reward"] == 0.375, "the mean over data sets"
    assert values["device_memory_peak_bytes"] == 1.5 * 2**30


def test_verls_printed_steps_stand_in_for_a_file_on_another_node(tmp_path: Path) -> None:
    logs = reader(tmp_path, "verl", "grpo")
    printed(tmp_path, frameworks.through_ray(frameworks.verl_line(1, DATA), actor="TaskRunner"))

    early = read(logs, now=SECOND)
    found = read(logs, now=7 * SECOND)

    assert early == {}
    assert found[1]["loss/policy"] == 0.125
    assert found[1]["reward/mean"] == 0.5
    assert math.isnan(found[1]["kl/old_policy"])
    assert found[1]["val-core/math/reward/mean@4"] == 0.5
    assert (found[1]["eval/reward"], found[1]["device_memory_peak_bytes"]) == (0.375, 1.5 * 2**30)


def test_names_of_early_versions_of_verl_are_those_of_today(tmp_path: Path) -> None:
    """As in https://github.com/verl-project/verl/issues/316."""
    logs = reader(tmp_path, "verl", "grpo")
    printed(tmp_path, "(main_task pid=51520) step:5 - mfu/actor:0.083 - val/test_score/openai/gsm8k:0.171\n")
    read(logs)

    found = read(logs, now=7 * SECOND)[5]

    assert (found["throughput/policy_mfu"], found["eval/reward"]) == (0.083, 0.171)


def test_what_early_versions_of_verl_round_to_nothing_is_not_told_as_zero(tmp_path: Path) -> None:
    """They print three decimals: a learning rate of 1e-6 and a divergence of 4e-4 are 0.000, later ones say 0.0."""
    logs = reader(tmp_path, "verl", "grpo")
    small = "actor/kl_loss:0.000 - actor/lr:0.000 - critic/lr:0.000 - actor/pg_clipfrac:0.000"
    printed(tmp_path, f"(TaskRunner pid=5) step:1 - {small} - critic/score/mean:0.000\n")
    printed(tmp_path, "(TaskRunner pid=5) step:2 - actor/kl_loss:0.001 - actor/lr:0.0 - actor/pg_clipfrac:0.0\n")
    read(logs)

    found = read(logs, now=7 * SECOND)

    assert found[1] == {"policy/clip_fraction": 0.0, "reward/mean": 0.0}
    assert found[2] == {"kl/reference": 0.001, "policy/learning_rate": 0.0, "policy/clip_fraction": 0.0}


BAR = "Training Progress:  50%|#####     | 1/2 [00:03<00:03,  3.36s/it]"


@pytest.mark.parametrize(
    "before",
    ["", BAR, f"{BAR}\r", "2026-11-20 12:00:00,123 ", "[2026-11-20 12:00:00] - ", "[rank0]: ", f"{BAR}[rank0]: "],
)
def test_verls_step_is_read_behind_what_others_print_on_its_line(tmp_path: Path, before: str) -> None:
    logs = reader(tmp_path, "verl", "grpo")
    score = "critic/score/mean:"
    line = frameworks.verl_line(2, {**DATA, "critic/score/mean": 0.5})
    line = line.replace(f"{score}0.5", f"{score}tensor(0.5, device='cuda:0')")
    assert "tensor(" in line

    printed(tmp_path, frameworks.through_ray(f"{before}{line}", actor="TaskRunner"))
    read(logs)

    assert read(logs, now=7 * SECOND)[2]["reward/mean"] == 0.5


def test_a_line_that_ray_has_folded_is_read(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf", "ppo")
    line = frameworks.through_ray(frameworks.openrlhf_line(1, STATUS), actor="PPOTrainer").rstrip("\n")

    printed(tmp_path, f"{line}\x1b[32m [repeated 3x across cluster] (Ray deduplicates logs by default.)\x1b[0m\n")

    assert read(logs)[1]["loss/policy"] == 0.125


@pytest.mark.parametrize("step", [-1, 1 << 31, 10**17])
def test_what_no_event_may_carry_as_a_step_is_none(tmp_path: Path, step: int) -> None:
    verl, openrlhf = (reader(tmp_path / name, name, "ppo") for name in ("verl", "openrlhf"))
    line = json.dumps({"step": step, "data": DATA | {"critic/score/mean": 0.5}})
    (tmp_path / "verl" / "log" / "verl.jsonl").write_text(f"{line}\n{line.replace(str(step), '3', 1)}\n")
    printed(tmp_path / "openrlhf", frameworks.openrlhf_line(step, STATUS) + frameworks.openrlhf_line(3, STATUS))

    assert set(read(verl)) == set(read(openrlhf)) == {3}


SFT = "openrlhf/trainer/sft_trainer.py"
BARS = {  # what the sources draw: the trainer's file, a description in it, and its total
    "openrlhf": ((SFT, "Train epoch", 2), (SFT, "Train step of epoch %d", 32)),
    "verl": (("verl/trainer/sft_trainer.py", "Epoch {epoch + 1}/{self.config.trainer.total_epochs}", 16),),
    "verl rl": (("verl/trainer/ppo/ray_trainer.py", "Training Progress", 120),),
}


@pytest.mark.parametrize(
    ("bars", "algorithm", "num_steps"), [("openrlhf", "sft", 8), ("verl", "sft", 64), ("verl rl", "grpo", 120)]
)
def test_the_number_of_steps_is_read_off_the_progress_bars(
    tmp_path: Path, bars: str, algorithm: str, num_steps: int
) -> None:
    trainer = bars.partition(" ")[0]
    sizes = {"openrlhf": {"train.batch_size": 128, "train.micro_batch_size": 16}}.get(trainer, {})
    logs = reader(tmp_path, trainer, algorithm, **sizes)
    wheel = {"openrlhf": frameworks.OPENRLHF, "verl": frameworks.VERL}[trainer]

    before = list(logs.poll(now_ns=SECOND))
    with (tmp_path / "log" / "driver-0.stderr").open("w", encoding="utf-8") as file:
        for path, said, total in BARS[bars]:
            assert said in (frameworks.unpacked(wheel) / path).read_text()
            text = said.replace("%d", "0").replace("{epoch + 1}/{self.config.trainer.total_epochs}", "1/4")
            with tqdm(range(total), desc=text, file=file, mininterval=0) as bar:
                bar.update()
    (told,) = logs.poll(now_ns=SECOND)

    assert before == []
    assert (told["kind"], told["meta"]) == ("note", {"num_steps": num_steps})
    assert list(logs.poll(now_ns=SECOND)) == []


@cache
def source_of(trainer: str) -> str:
    """Return all Python source of the newest wheel of a trainer."""
    info = trainers()[trainer]
    folder = frameworks.unpacked(f"{info.package}-{info.versions[0]}")
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*.py"))


def test_every_name_of_a_trainer_is_one_of_its_own() -> None:
    """The frameworks' sources say every name, or the parts that it is made of."""
    for name, info in metrics().items():
        for whose, theirs in info.sources.items():
            source = source_of(whose.partition("/")[0])
            for each in (
                part.strip("/_@") for one in theirs for part in re.split(r"\{\w+\}", one) if part.strip("/_@")
            ):
                own = re.sub("^(train|eval)/", "", each)
                parts = [each] if each in source else [own] if own in source else each.split("/")
                assert all(part in source for part in parts), (name, each)


def test_healthy_ranges_are_ranges_and_name_their_source() -> None:
    held = {name: info for name, info in metrics().items() if info.healthy}
    assert {"loss/policy", "loss/value", "kl/reference", "policy/clip_fraction", "response/truncated_fraction"} <= set(
        held
    )
    for name, info in held.items():
        low, high = info.healthy
        assert low < high, name
        assert info.healthy_source, name
