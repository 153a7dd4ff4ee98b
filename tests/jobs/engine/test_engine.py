"""The built-in trainer on real Ray, DeepSpeed and vLLM."""

import itertools
import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from jobs.catalog.metric import PEAKS, metrics, peak_name
from jobs.engine.checkpoints.checkpoint import Checkpoints, read_state
from profiling.phases import BY_KEY, STEP_PHASES
from profiling.process_memory import ProcessFiles
from tests.jobs.engine.conftest import GRPO, RUN_SECONDS, EndedRun
from tests.jobs.engine.test_own_algorithm import EXAMPLE
from tests.waiting import wait_until

pytestmark = pytest.mark.engine

SFT: dict[str, Any] = {
    "algorithm": "sft",
    "profile": {"nsys_ready": "off"},
    "knobs": {"train.num_steps": 12, "eval.num_prompts": 32},
}


ON_DEMAND = (
    "groups/sampled",
    "groups/kept",
    "groups/generations",
    "reward/overlong",
    "reward/clipped",
    "reward/failed",
    "reward/code",
    "reward/running",
    "kl/coefficient",
    "loss/labels",
    "loss/pairs",
    "labels/",
    "pairs/",
    "loss/distillation",
    "teacher/",
    "policy/trainable",
    "policy/adapter",
)
"""What runs tell that sample groups again, shape or normalize their rewards, run code, go on after failures of them or
move the weight of the KL; that learn from labels, pairs or a teacher; that train adapters."""


def test_a_grpo_run_finishes(grpo: EndedRun) -> None:
    assert grpo.code == 0, grpo.output
    assert [e["state"] for e in grpo.of("state")][-1] == "done"
    assert {e["attempt"] for e in grpo.events} == {2}


def test_every_canonical_metric_of_grpo_is_told_for_every_step(grpo: EndedRun) -> None:
    apart = ("eval/", "loss/sft", "loss/value", "value/", "time/eval", "time/checkpoint", "time/export", "time/load")
    apart = (*apart, *ON_DEMAND)
    synced = ("sync/max_logprob_diff", "sync/mean_probability_diff", "sync/far_token_fraction", "kl/rollout")
    off_policy = ("policy/ratio_mean", "time/old_logprobs_seconds")  # with several updates a rollout
    here = [name for name, info in metrics().items() if info.told_here]
    peaks = {peak_name(kind, phase) for kind in PEAKS for phase in BY_KEY}
    # Other readings have no "/".
    wanted = {name for name in here if "/" in name and not name.startswith(apart)} - peaks - {*synced, *off_policy}

    for name in wanted:
        assert sorted(grpo.series(name)) == [1, 2, 3, 4, 5, 6], name
    for name in synced:
        assert sorted(grpo.series(name)) == [0, 1, 2, 3, 4, 5, 6], name
    assert not [name for name in off_policy if grpo.series(name)]
    assert sorted(grpo.series("eval/accuracy")) == [0, 3, 6]


def test_it_solves_more_held_out_problems_than_before(grpo: EndedRun) -> None:
    """What five seeds of each algorithm show in `make proof-learning`, for one."""
    accuracy = grpo.series("eval/accuracy")

    assert accuracy[6] - accuracy[0] > 0.25
    assert grpo.series("eval/reward")[6] > grpo.series("eval/reward")[0] + 0.25


def test_each_phase_has_a_duration_and_spans_on_the_lanes_of_those_who_work(grpo: EndedRun) -> None:
    phases = set(STEP_PHASES) - {"old_logprobs"}
    for phase in phases:
        assert all(s > 0 for s in grpo.series(f"time/{phase}_seconds").values()), phase
    lanes = {(e["role"], e["rank"], e["phase"]) for e in grpo.of("span") if e["depth"] == 0}
    assert {("driver", 0, phase) for phase in phases} <= lanes
    assert {("vllm", 0, p) for p in ("load", "rollout", "weight_sync", "eval")} <= lanes
    assert {("policy", rank, p) for rank in (0, 1) for p in ("load", "update", "checkpoint")} <= lanes
    assert ("reference", 0, "reference") in lanes
    assert {e["phase"] for e in grpo.of("span")} <= set(BY_KEY)
    assert {e["name"] for e in grpo.of("span") if e["depth"] == 1} >= {"forward", "backward", "optimizer"}


@pytest.mark.skipif(ProcessFiles().peak_bytes() < 0, reason="this kernel sets no high-water mark back")
def test_every_role_tells_the_peak_of_its_phases_and_what_it_held_before_its_model(grpo: EndedRun) -> None:
    told: dict[tuple[str, str], list[float]] = {}
    for event in grpo.of("system"):
        for name, value in event["values"].items():
            told.setdefault((event["role"], name), []).append(value)

    works = {"policy": ("load", "update"), "reference": ("reference",), "vllm": ("rollout",)}
    for role, phases in works.items():
        for phase in phases:
            peaks = told[role, peak_name("resident_peak", phase)]
            assert min(peaks) > min(told[role, "memory_baseline_bytes"]), (role, phase)
    assert not any(name.startswith("device_") for _role, name in told)  # not measured is not told


def test_spans_of_a_lane_follow_one_another(grpo: EndedRun) -> None:
    for lane in {(e["role"], e["rank"]) for e in grpo.of("span")}:
        spans = sorted(
            (e["start"], e["duration"]) for e in grpo.of("span") if (e["role"], e["rank"]) == lane and e["depth"] == 0
        )
        for (start, duration), (following, _) in itertools.pairwise(spans):
            assert following >= start + duration - 2_000_000  # the wall clock may be set while a span is open


def test_vllm_and_trainer_agree_after_every_sync_the_last_included(grpo: EndedRun) -> None:
    gaps = grpo.series("sync/max_logprob_diff")

    assert sorted(gaps) == [0, 1, 2, 3, 4, 5, 6]
    assert 0 < max(gaps.values()) <= 1e-3


def test_telling_costs_a_small_part_of_a_step(grpo: EndedRun) -> None:
    told, whole = grpo.series("time/event_seconds"), grpo.series("time/step_seconds")

    assert median(told[step] / whole[step] for step in whole) <= 0.05  # the bench measures it against 0.5 %


def test_samples_are_shown_and_all_of_them_kept(grpo: EndedRun) -> None:
    shown = [e for e in grpo.of("sample") if not e["is_eval"] and e["step"] == 1]
    assert all(sum(length for length, _ in e["token_logprobs"]) == len(e["completion"]) for e in shown)
    assert all(logprob <= 0 for e in shown for _, logprob in e["token_logprobs"])
    kept = [json.loads(line) for line in (grpo.run_dir / "samples" / "step-000001.jsonl").read_text().splitlines()]

    assert len(shown) == 32
    assert len(kept) == 32
    assert {"prompt", "completion", "expected", "reward", "rewards", "tokens"} <= set(shown[0])
    assert sum(e["reward"] for e in kept) / 32 == pytest.approx(grpo.series("reward/mean")[1], abs=1e-6)


def test_logs_of_actors_travel_by_role_and_rank(grpo: EndedRun) -> None:
    assert {(e["role"], e["rank"]) for e in grpo.of("log")} >= {("vllm", 0)}
    assert (grpo.run_dir / "log" / "policy-1.stderr").exists()


def readings_of(ended: EndedRun) -> dict[tuple[str, int], dict[str, float]]:
    """Return the last of each reading, by role and rank; several events tell them."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for event in ended.of("system"):
        found.setdefault((event["role"], event["rank"]), {}).update(event["values"])
    return found


def test_memory_is_told_for_every_role_and_rank(grpo: EndedRun) -> None:
    readings = readings_of(grpo)

    assert set(readings) == {("policy", 0), ("policy", 1), ("vllm", 0), ("reference", 0)}
    assert all(v["memory_bytes"] > 1e8 for v in readings.values())


def test_the_checkpoint_is_whole(grpo: EndedRun) -> None:
    folder = grpo.run_dir / "checkpoints" / "step-6"

    assert read_state(folder).step == 6
    assert read_state(folder).num_consumed == 48
    assert len(list(folder.glob("policy/*.safetensors"))) == 2
    assert [p.name for p in sorted((grpo.run_dir / "checkpoints").iterdir())] == ["step-3", "step-6"]
    notes = [e["text"] for e in grpo.of("note")]
    assert any(n.startswith("Checkpoint 6 saved, ") and " MiB in " in n for n in notes)


def test_a_checkpoint_is_announced_with_what_people_choose_by(grpo: EndedRun) -> None:
    announced = {e["step"]: e["meta"] for e in grpo.of("artifact") if e["artifact"] == "checkpoint"}

    assert set(announced) == {3, 6}
    for step, meta in announced.items():
        assert meta["reward"] == grpo.series("reward/mean")[step]
        assert meta["score"] == grpo.series("eval/accuracy")[step]
        assert (meta["ranks"], meta["zero_stage"]) == (2, 2)
        assert meta["bytes"] > 3 * 657_024 * 4
        assert meta["seconds"] > 0


def test_artifacts_are_announced_with_size_and_place(grpo: EndedRun) -> None:
    found = {e["name"]: e for e in grpo.of("artifact")}

    assert set(found) == {"model-best", "model-final", "checkpoint-3", "checkpoint-6", "tensorboard"}
    for event in found.values():
        assert event["size"] > 0
        assert (grpo.run_dir / event["path"]).is_dir()


def test_plain_transformers_generates_what_vllm_did(grpo: EndedRun) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = grpo.run_dir / "model" / "final"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    kept = [json.loads(line) for line in (grpo.run_dir / "samples" / "eval-000006.jsonl").read_text().splitlines()]
    torch.set_num_threads(1)  # with two, threads spin as soon as others use the cores, too

    assert model.dtype == torch.float32
    assert len(kept) == 16
    for sample in kept:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": sample["prompt"]}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )["input_ids"]
        answer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)[
            0, ids.shape[1] :
        ]
        assert tokenizer.decode(answer, skip_special_tokens=True) == sample["completion"]
        assert len(answer) == sample["tokens"]


def test_tensorboard_reads_the_run(grpo: EndedRun) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(grpo.run_dir / "tb"))
    found.Reload()

    told = grpo.series("reward/mean")
    assert {p.step: p.value for p in found.Scalars("reward/mean")} == pytest.approx(told, abs=1e-6)


def test_stop_saves_and_exits_with_ten(stopped: EndedRun) -> None:
    assert stopped.code == 10, stopped.output
    last = max(stopped.series("time/step_seconds"))
    assert last < 400
    assert read_state(stopped.run_dir / "checkpoints" / f"step-{last}").step == last
    assert (stopped.run_dir / "model" / "final" / "model.safetensors").exists()
    assert [e["state"] for e in stopped.of("state")][-1] == "done"


def test_the_same_spec_gives_the_same_rewards_whatever_the_zero_stage_and_the_layout(
    grpo: EndedRun, stopped: EndedRun
) -> None:
    for step in (1, 2):
        kept = [
            [
                json.loads(line)["reward"]
                for line in (run.run_dir / "samples" / f"step-{step:06d}.jsonl").read_text().splitlines()
            ]
            for run in (grpo, stopped)
        ]
        assert kept[0] == kept[1]


def test_the_reference_in_the_policy_ranks_says_what_one_of_its_own_says(grpo: EndedRun, stopped: EndedRun) -> None:
    for name in ("kl/reference", "loss/policy"):
        apart, shared = grpo.series(name), stopped.series(name)
        assert [shared[step] for step in (1, 2)] == pytest.approx([apart[step] for step in (1, 2)], abs=1e-5), name
    lanes = {(e["role"], e["rank"]) for e in stopped.of("span") if e["phase"] == "reference" and e["role"] != "driver"}
    assert lanes == {("policy", 0), ("policy", 1)}
    assert set(readings_of(stopped)) == {("policy", 0), ("policy", 1), ("vllm", 0)}
    assert all(seconds > 0 for seconds in stopped.series("time/reference_seconds").values())


def test_zero_3_shards_show_in_measured_bytes(grpo: EndedRun, stopped: EndedRun) -> None:
    two, three = readings_of(grpo), readings_of(stopped)

    for rank in (0, 1):
        whole = two["policy", rank]["parameter_bytes"]
        assert whole >= 657_024 * 4
        assert three["policy", rank]["parameter_bytes"] <= 0.52 * whole


@pytest.mark.proof
def test_a_rollout_that_missed_a_sync_ends_the_run_with_its_cause(start_engine: Any, tmp_path: Path) -> None:
    """In bfloat16, where single tokens are off by nats anyway; float32 in test_ranks."""
    knobs = {"memory.precision": "bfloat16", "optimizer.learning_rate": 0.01, "eval.num_prompts": 0}
    spec = GRPO | {"knobs": GRPO["knobs"] | knobs}

    ended = start_engine(tmp_path, spec, program=("tests.jobs.engine.broken_run", "deaf")).wait()

    assert ended.code == 1
    assert (ended.cause["side"], ended.cause["role"]) == ("trainer", "vllm")
    assert ended.cause["step"] in (2, 3)  # at once, or twice in a row
    assert "The rollout did not get the policy's weights" in ended.cause["text"]


def test_gradients_that_stay_not_finite_end_a_run_with_its_last_checkpoint_kept(
    start_engine: Any, tmp_path: Path
) -> None:
    """In ZeRO-0, where torch's own optimizer would put NaN into every weight. The loss is none from step 4 on."""
    knobs = {
        "memory.zero_stage": "0",
        "train.num_steps": 40,
        "train.batch_size": 8,
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 2,
        "checkpoint.keep": 1,
        "checkpoint.async_save": True,
        "optimizer.max_skipped_steps": 2,
    }
    spec = {"algorithm": "sft", "hardware": {"policy_ranks": 1}, "profile": {"nsys_ready": "off"}, "knobs": knobs}

    ended = start_engine(tmp_path, spec, program=("tests.jobs.engine.broken_run", "diverging")).wait()

    assert ended.code == 1
    assert (ended.cause["side"], ended.cause["role"], ended.cause["step"]) == ("trainer", "policy", 6)
    assert "not finite 3 times in a row" in ended.cause["text"]
    assert ended.series("policy/skipped_steps") == {1: 0, 2: 0, 3: 0, 4: 1, 5: 1}
    assert [e["text"] for e in ended.of("note") if "was skipped" in e["text"]] == [
        f"Step {step} was skipped: its gradient is not finite." for step in (4, 5)
    ]
    assert read_state(tmp_path / "checkpoints" / "step-4").step == 4  # with the weights of step 3
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-4"]
    announced = [(e["step"], e["size"] > 0) for e in ended.of("artifact") if e["artifact"] == "checkpoint"]
    assert announced == [(2, True), (4, True), (2, False)]


FAILS_SOMETIMES = "def reward(p, c, a):\n    n = sum(map(ord, c))\n    return (n % 5) / (n % 3 > 0)\n"


@pytest.mark.slow("a run of its own")
def test_rloo_and_the_other_half_of_the_knobs(start_engine: Any, tmp_path: Path) -> None:
    knobs = {
        "train.num_steps": 2,
        "train.updates_per_rollout": 2,
        "train.micro_batch_size": 24,  # does not divide the 64 of a rank
        "rollout.prompts_per_step": 8,
        "rollout.samples_per_prompt": 16,
        "rollout.temperature": 0.7,
        "rollout.max_new_tokens": 16,
        "rollout.enable_prefix_caching": False,
        "algorithm.kl_coefficient": 0,
        "algorithm.loss_aggregation": "sequence_mean",
        "optimizer.learning_rate": 3e-3,
        "optimizer.schedule": "cosine",
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 1,
        "checkpoint.async_save": True,
        "checkpoint.keep": 1,
        "memory.adam_offload": True,
        "logging.samples_per_step": 3,
        "reward.on_failure": "skip",
    }
    spec = {
        "algorithm": "rloo",
        "hardware": {"layout": "split", "rollout_engines": 2},
        "reward": {
            "kind": "format",
            "weight": 2.0,
            "more": [{"kind": "custom", "name": "length", "source": FAILS_SOMETIMES}],
        },
        "knobs": knobs,
    }

    ended = start_engine(tmp_path, spec).wait()

    assert ended.code == 0, ended.output
    assert max(ended.series("sync/max_logprob_diff").values()) <= 1e-3
    assert ended.series("policy/clip_fraction")[1] > 0  # the second update is off-policy
    assert sorted(ended.series("policy/ratio_mean")) == sorted(ended.series("time/old_logprobs_seconds")) == [1, 2]
    assert max(ended.series("response/length_p95").values()) <= 16
    assert min(ended.series("response/truncated_fraction").values()) > 0.5
    assert ended.series("policy/learning_rate") == pytest.approx({1: 3e-3, 2: 1.5e-3})
    assert not ended.series("eval/accuracy")
    assert not ended.series("kl/reference")
    assert not ended.series("time/reference_seconds")
    assert sorted(ended.series("reward/format")) == sorted(ended.series("reward/length")) == [1, 2]
    assert all(0 < share < 1 for share in ended.series("reward/failed_fraction").values())
    assert len([e for e in ended.of("note") if "could not be scored" in e["text"]]) == 1
    assert {(e["role"], e["rank"]) for e in ended.of("system")} == {
        ("policy", 0),
        ("policy", 1),
        ("vllm", 0),
        ("vllm", 1),
    }
    assert len([e for e in ended.of("sample") if e["step"] == 1]) == 3
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-2"]


def test_dapo_draws_others_for_groups_without_variance(start_engine: Any, tmp_path: Path) -> None:
    """With the KL in the reward, a controller of its coefficient, a bonus for entropy, rewards normalized over the run,
    and bounds, all in one run."""
    knobs = {
        "train.num_steps": 2,
        "rollout.prompts_per_step": 8,
        "rollout.samples_per_prompt": 2,
        "algorithm.dynamic_sampling_generations": 2,
        "algorithm.kl_coefficient": 0.01,
        "algorithm.kl_in_loss": False,
        "algorithm.kl_target": 0.05,
        "algorithm.kl_horizon": 160,
        "algorithm.entropy_coefficient": 0.001,
        "reward.normalize": True,
        "reward.clip_high": 0.5,
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 0,
    }
    hardware = {"layout": "colocated", "policy_ranks": 1}

    ended = start_engine(tmp_path, {"algorithm": "dapo", "hardware": hardware, "knobs": knobs}).wait()

    assert ended.code == 0, ended.output
    drawn, kept = ended.series("groups/sampled"), ended.series("groups/kept")
    assert sorted(drawn) == sorted(kept) == [1, 2]
    assert max(drawn.values()) > 8
    epochs = ended.series("train/epoch")  # every prompt that was drawn is consumed
    assert epochs[2] / epochs[1] == pytest.approx((drawn[1] + drawn[2]) / drawn[1])
    for step in (1, 2):
        assert ended.series("groups/zero_variance_fraction")[step] == pytest.approx(1 - kept[step] / 8)
        notes = [e["text"] for e in ended.of("note") if f"Step {step} learns from" in e["text"]]
        assert len(notes) == (kept[step] < 8)
    assert max(ended.series("reward/clipped_fraction").values()) > 0
    (index,) = (tmp_path / "checkpoints").glob("*/checkpoint.json")
    moments = json.loads(index.read_text())["reward_moments"]  # of all that were scored, also those drawn in vain
    assert moments["count"] == 2 * sum(drawn.values())
    assert ended.series("reward/running_mean")[2] == pytest.approx(moments["mean"])
    coefficients = ended.series("kl/coefficient")
    assert coefficients[1] == pytest.approx(0.01)
    assert coefficients[2] == pytest.approx(0.01 * (1 - 0.2 * 16 / 160), rel=1e-6)  # below the target: as far as it may


OWN_METRIC = """

def counted(batch, outputs, spec, counts):
    loss, metrics = GEOMETRIC.policy_loss(batch, outputs, spec, counts)
    return loss, metrics | {"policy/mine": torch.tensor(batch.num_sequences / counts.num_sequences)}


GEOMETRIC = PLUGIN
PLUGIN = Algorithm(
    advantages=GEOMETRIC.advantages, needs_old_logprobs=GEOMETRIC.needs_old_logprobs, policy_loss=counted
)
"""


def test_colocated_the_policy_ranks_draw_score_and_learn_without_vllm(start_engine: Any, tmp_path: Path) -> None:
    saved = {"checkpoint.every_steps": 1, "checkpoint.keep": 1, "checkpoint.keep_best": 0}
    own = {"algorithm.source": EXAMPLE.read_text(encoding="utf-8") + OWN_METRIC}
    knobs = GRPO["knobs"] | {"train.num_steps": 4, "memory.precision": "bfloat16"} | saved | own
    asked = {"capture": "novllm", "tool": "torch", "first_step": 2, "num_steps": 1, "roles": ["vllm"], "ranks": []}
    line = json.dumps({"number": 1, "verb": "profile", "payload": asked})
    (tmp_path / "commands.jsonl").write_text(f"{line}\n")

    spec = GRPO | {"hardware": {"layout": "colocated"}, "knobs": knobs}
    running = start_engine(tmp_path, spec, program=("tests.jobs.engine.holding_run", "3"))
    wait_until(lambda: [e for e in running.events() if e.get("name") == "checkpoint-2"], RUN_SECONDS, running.output)
    changed = {"optimizer.learning_rate": 1e-3, "rollout.temperature": 0.5}
    with (tmp_path / "commands.jsonl").open("a") as file:
        file.write(json.dumps({"number": 2, "verb": "set", "payload": {"knobs": changed}}) + "\n")
        file.write(json.dumps({"number": 3, "verb": "pin", "payload": {"step": 2, "is_pinned": True}}) + "\n")
    running.hold_no_longer(3)
    ended = running.wait()

    assert ended.code == 0, ended.output
    # Sampler and scores took the temperature at once, or the differences below would be far from 0.
    (taken,) = [e for e in ended.of("note") if "knobs" in e["meta"]]
    assert {c["knob"]: c["new"] for c in taken["meta"]["knobs"]["changes"]} == changed
    rates = ended.series("policy/learning_rate")
    assert taken["step"] in (3, 4)
    assert {step: rate for step, rate in rates.items() if rate != 1e-3} == dict.fromkeys(range(1, taken["step"]), 3e-4)
    assert Checkpoints(tmp_path / "checkpoints", keep=1).steps() == [2, 4]
    index = json.loads((tmp_path / "checkpoints" / "step-4" / "checkpoint.json").read_text())
    assert index["spec"]["knobs"]["rollout.temperature"]["value"] == 0.5
    assert {(e["role"], e["rank"]) for e in ended.of("span")} == {("driver", 0), ("policy", 0), ("policy", 1)}
    lanes = {(e["role"], e["phase"]) for e in ended.of("span") if e["role"] == "policy"}
    assert {("policy", phase) for phase in ("rollout", "reference", "update", "eval")} <= lanes
    assert sorted(ended.series("sync/mean_probability_diff")) == [0, 1, 2, 3]  # it drew with the weights it learns from
    assert max(ended.series("sync/mean_probability_diff").values()) < 0.005
    refused = [e["text"] for e in ended.of("capture") if e["state"] == "failed"]
    assert refused == ["This run has no role 'vllm'. Use policy."]
    assert ended.series("policy/mine") == pytest.approx(dict.fromkeys(range(1, 5), 1.0))  # by formulas of its own
    assert not ended.series("time/weight_sync_seconds")
    assert not ended.series("sync/bytes")
    assert sorted(ended.series("eval/accuracy")) == [0, 3, 4]
    assert all(0 < reward < 1 for reward in ended.series("reward/mean").values())


def test_sft_learns(start_engine: Any, tmp_path: Path) -> None:
    ended = start_engine(tmp_path, SFT).wait()

    assert ended.code == 0, ended.output
    losses = ended.series("loss/sft")
    assert sorted(losses) == list(range(1, 13))
    assert losses[12] < 0.6 * losses[1]
    assert ended.series("eval/loss")[12] < 0.6 * ended.series("eval/loss")[0]
    assert {e["role"] for e in ended.of("system")} == {"policy"}
    assert ended.series("policy/learning_rate")[1] == pytest.approx(3e-3 / 20)


def test_bad_data_fails_before_anything_is_trained(start_engine: Any, tmp_path: Path) -> None:
    ended = start_engine(tmp_path, SFT | {"data": {"kind": "path", "id": str(tmp_path / "none.jsonl")}}).wait()

    assert ended.code == 1
    assert (ended.cause["side"], ended.cause["field"]) == ("user", "data.id")
    assert "There is no file" in ended.cause["text"]
    assert not (tmp_path / "checkpoints").exists()
