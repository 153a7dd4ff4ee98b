"""The benchmark against TRL: its arithmetic, what it reads from both sides, and the model whose responses end."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from tests.bench.engine import __main__ as command
from tests.bench.engine import builtin_side, trl_program, trl_side, workloads
from tests.bench.engine.comparison import (
    Gate,
    SideRun,
    StepRecord,
    differences,
    fastest,
    not_quiet,
    ratios,
    reward_difference,
    step_seconds,
)
from tests.bench.engine.meter import below, busy_seconds, read_stats, value_at
from tests.bench.engine.random_model import expected_tokens, make_ending, ticks_for
from tests.bench.engine.report import PartResult, curve_of, rows_of, to_json


def made(side: str, step: float, *, steps: int = 6, sequences: int = 10, tokens: int = 200, **each: Any) -> SideRun:
    """Return a run whose counted steps take `step` seconds; the first two take ten times as long."""
    ends = [10 * step, 20 * step, *(20 * step + k * step for k in range(1, steps - 1))]
    records = [
        StepRecord(step=k, end=end, sequences=sequences, tokens=tokens, **{"reward": 0.5, "prompts": "a", **each})
        for k, end in enumerate(ends, start=1)
    ]
    return SideRun(
        side=side,
        steps=records,
        cpu_seconds=4 * step,
        others_cpu_seconds=0.4 * step,
        cores=2,
        memory_bytes=1 << 30,
        shared_once_bytes=1 << 29,
        ready_seconds=5.0,
        reporting=[0.004, 0.002, 0.009] if side == "built-in" else (),
    )


def part(ours: Sequence[float], theirs: Sequence[float]) -> PartResult:
    return PartResult(
        workload=workloads.WORKLOADS["grpo-demo"],
        baseline="TRL, generate",
        ours="built-in",
        runs={
            "built-in": [made("built-in", s) for s in ours],
            "TRL, generate": [made("TRL, generate", s) for s in theirs],
        },
        tried={"generate": made("TRL, generate", theirs[0]), "vLLM": "it does not load"},
    )


def test_the_first_two_steps_do_not_count() -> None:
    assert step_seconds([9.0, 12.0, 13.0, 15.0]) == [1.0, 2.0]
    with pytest.raises(ValueError, match="too few"):
        step_seconds([9.0, 12.0])


def test_speed_memory_and_waiting_are_of_the_counted_steps() -> None:
    run = made("built-in", 2.0)

    assert (run.step_median, run.samples_per_second, run.tokens_per_second) == (2.0, 5.0, 100.0)
    assert (run.cpu_per_step, run.idle_fraction) == (2.0, 0.5)
    assert run.others_fraction == pytest.approx(0.05)
    assert (run.mean_length, run.mean_reward) == (20.0, 0.5)


def test_rounds_are_paired_and_the_gate_takes_the_median_ratio() -> None:
    found = part(ours=[1.0, 2.0, 1.0], theirs=[1.5, 2.0, 1.3])

    assert ratios(found.runs["TRL, generate"], found.runs["built-in"]) == pytest.approx([1.5, 1.0, 1.3])
    assert found.gate.measured == pytest.approx(1.3)
    assert found.gate.holds
    assert not part(ours=[1.0, 1.0, 1.0], theirs=[1.5, 1.19, 1.0]).gate.holds
    assert str(Gate(what="speed", asked=1.2, measured=1.0)) == "speed: asked 1.2, measured 1 (missed)"
    assert (found.reporting_gate.measured, found.reporting_gate.holds) == (0.004, True)
    assert str(Gate(what="cost", asked=1, measured=2.0, is_most=True)) == "cost: asked at most 1, measured 2 (missed)"


def test_the_setting_of_trl_that_counts_is_its_fastest() -> None:
    assert fastest({"slow": made("a", 2.0), "fast": made("b", 1.0)}) == "fast"


def test_runs_that_did_the_same_work_do_not_differ() -> None:
    assert differences(made("TRL", 1.0, loss=6.0), made("built-in", 2.0, loss=6.001)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompts": "b"}, "Step 1 has other prompts."),
        ({"sequences": 9, "tokens": 180}, "Step 1 has 9 sequences against 10."),
        ({"tokens": 220}, "Step 1 has 220 tokens against 200."),
        ({"tokens": 220, "loss": None}, "Sequences have 22.0 tokens against 20.0: 10.0% apart, 5% are allowed."),
        ({"loss": 6.1}, "The loss of step 1 is 6.1 against 6."),
        ({"loss": float("nan")}, "The loss of step 1 is nan against 6."),
        ({"steps": 5}, "5 steps against 6."),
        ({"gap": 0.002}, "built-in samples with other weights: 0.002 nats off, 0.001 are allowed."),
    ],
)
def test_runs_that_did_other_work_are_named(change: dict[str, Any], sentence: str) -> None:
    assert differences(made("TRL", 1.0, loss=6.0), made("built-in", 1.0, **{"loss": 6.0, **change}))[0] == sentence


def test_rewards_are_compared_over_all_rounds() -> None:
    theirs = [made("TRL", 1.0, reward=0.5), made("TRL", 1.0, reward=0.5)]
    above_and_below = [made("built-in", 1.0, reward=0.6), made("built-in", 1.0, reward=0.42)]

    assert reward_difference(theirs, above_and_below) == ""
    apart = reward_difference(theirs, [above_and_below[0]] * 2)
    assert apart == "The mean reward is 0.600 against 0.500; 0.05 are allowed."
    assert reward_difference([made("TRL", 1.0, reward=None)], [made("built-in", 1.0, reward=None)]) == ""


def test_a_run_that_met_other_work_is_made_again(tmp_path: Path) -> None:
    shares = iter([0.5, 0.2, 0.3, 0.05])

    def side(folder: Path, number: int) -> SideRun:
        return replace(made("built-in", 1.0), others_cpu_seconds=8 * next(shares))

    disturbed = command.quietest(side, tmp_path, 0, patience=2)
    quiet = command.quietest(side, tmp_path, 0, patience=2)

    assert disturbed.others_fraction == pytest.approx(0.2)
    assert not_quiet(disturbed) == "built-in ran while other work took 20% of the machine; 10% are allowed."
    assert not_quiet(quiet) == ""


def test_the_table_and_the_json_have_every_side() -> None:
    found = part(ours=[1.0, 2.0], theirs=[1.5, 2.0])
    phases = {"rollout": [0.5, 0.6]}
    ours = [replace(run, phases=phases, waiting={"policy": 0.25}) for run in found.runs["built-in"]]
    found = replace(found, runs={**found.runs, "built-in": ours})

    rows = {each.what: each for each in rows_of(found)}

    assert rows["grpo-demo: samples/s, times TRL's"].spread == (1.0, 1.5)
    assert rows["grpo-demo: built-in: phase rollout"].median == pytest.approx(0.55)
    assert rows["grpo-demo: built-in: policy waits"].median == pytest.approx(25.0)
    assert rows["grpo-demo: TRL, generate: resident memory, all processes added"].median == 1024
    assert json.loads(json.dumps(to_json(found)))["tried"]["vLLM"] == "it does not load"
    assert curve_of(ours) == [0.5] * 6


def test_a_counter_is_read_between_its_readings() -> None:
    times, values = [10.0, 11.0, 13.0], [1.0, 3.0, 4.0]

    assert [value_at(t, times, values) for t in (9.0, 10.5, 12.0, 13.0, 20.0)] == [1.0, 2.0, 3.5, 4.0, 4.0]


def test_the_tree_of_a_process_is_found() -> None:
    assert below([2, 9], {1: 0, 2: 1, 3: 2, 4: 3, 5: 1}) == {2, 3, 4}


def test_this_machine_can_be_read() -> None:
    stats = read_stats()

    assert stats[1].parent == 0
    assert busy_seconds() >= stats[1].cpu_seconds


def test_steps_of_trl_are_those_of_all_its_processes() -> None:
    def lines(reward: float) -> list[dict[str, Any]]:
        rollout = {"kind": "rollout", "prompts": ["p", "q"], "lengths": [3, 5], "rewards": [reward, reward]}
        return [{"kind": "begin", "end": 1.0}, rollout, {"kind": "step", "step": 1, "end": 2.0 + reward}]

    log = {"kind": "log", "step": 1, "values": {"loss": 0.1, trl_side.GAP: 0.5}}
    (step,) = trl_side.steps_of([[*lines(0.0), log], lines(1.0)], sequences=0)

    assert step.gap == 0.5
    assert (step.end, step.sequences, step.tokens, step.reward) == (2.0, 4, 16, 0.5)
    assert (step.shortest, step.longest, step.prompts) == (3, 5, trl_side.digest({"q", "p"}))


def test_steps_of_fine_tuning_by_trl_have_their_own_tokens() -> None:
    lines = [
        line
        for k in (1, 2)
        for line in (
            {"kind": "step", "step": k, "end": float(k)},
            {"kind": "log", "step": k, "values": {"loss": 6.0 - k, "num_tokens": 100.0 * k}},
        )
    ]

    steps = trl_side.steps_of([lines], sequences=32)

    assert [(s.tokens, s.loss, s.sequences) for s in steps] == [(100, 5.0, 32), (100, 4.0, 32)]


def test_steps_of_the_built_in_trainer_come_from_its_run_directory(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    samples = [{"prompt": "p", "tokens": 3}, {"prompt": "p", "tokens": 5}]
    text = "".join(json.dumps(sample) + "\n" for sample in samples)
    (tmp_path / "samples" / "step-000001.jsonl").write_text(text)
    values = {"time/step_seconds": 2.0, "time/rollout_seconds": 0.5, "time/event_seconds": 0.1, "reward/mean": 0.25}
    span = {"kind": "span", "depth": 0, "start": 1_000_000_000, "duration": 500_000_000, "step": 1}
    events = [
        {"kind": "metric", "step": 0, "values": {"sync/max_logprob_diff": 0.0}, "t": 1},
        {**span, "role": "policy", "rank": 0},
        {**span, "role": "policy", "rank": 1, "duration": 1_500_000_000},
        {**span, "role": "policy", "rank": 1, "depth": 1},
        {**span, "role": "policy", "rank": 0, "start": 3_000_000_000},
        {**span, "role": "driver", "rank": 0},
        {"kind": "metric", "step": 1, "values": values, "t": 3_000_000_000},
        {"kind": "metric", "step": 1, "values": {"sync/max_logprob_diff": 1e-5}, "t": 4_000_000_000},
    ]

    (step,) = builtin_side.steps_of(events, tmp_path, sequences=0)

    assert (step.end, step.sequences, step.tokens, step.reward) == (3.0, 2, 8, 0.25)
    assert step.gap == 1e-5
    assert step.prompts == trl_side.digest({"p"})
    assert builtin_side.waiting_of(events, 1_000_000_000, 3_000_000_000) == {"policy": 0.5}
    later = [{**events[-2], "step": step} for step in (2, 3)]
    assert builtin_side.phases_of([*events, *later]) == {"rollout": [0.5]}
    assert builtin_side.reporting_of([*events, *later]) == [0.05]


def test_every_spec_is_one_that_the_built_in_trainer_takes(tmp_path: Path) -> None:
    specs = [
        workloads.demo_spec(4, 0),
        workloads.long_responses_spec(tmp_path, tmp_path / "rows.jsonl", 4, 0),
        workloads.fine_tuning_spec(tmp_path, tmp_path / "rows.jsonl", 4, 0),
    ]

    for spec, workload in zip(specs, workloads.WORKLOADS.values(), strict=True):
        parsed = parse_spec(spec)
        assert parsed.algorithm == workload.algorithm
        assert parsed.num_steps == 4
        if workload.algorithm == "grpo":
            prompts, samples = (
                parsed.int_knob("rollout.prompts_per_step"),
                parsed.int_knob("rollout.samples_per_prompt"),
            )
            assert prompts * samples == workload.sequences
            assert samples == workload.config["num_generations"]
            assert parsed.int_knob("rollout.max_new_tokens") == workload.config["max_completion_length"]
            assert parsed.float_knob("algorithm.kl_coefficient") == workload.config["beta"]
        assert parsed.float_knob("optimizer.learning_rate") == workload.config["learning_rate"]
        assert parsed.float_knob("optimizer.beta2") == workload.config["adam_beta2"]
        assert parsed.float_knob("optimizer.weight_decay") == workload.config["weight_decay"]
        assert parsed.float_knob("optimizer.max_grad_norm") == workload.config["max_grad_norm"]
        for setting in workload.settings:
            micro = setting.config["per_device_train_batch_size"] * setting.config.get("gradient_accumulation_steps", 1)
            assert micro * setting.processes == workload.sequences, setting.name


def test_the_rows_are_those_that_the_built_in_trainer_takes_first() -> None:
    spec = parse_spec(workloads.demo_spec(4, 0))

    rows = workloads.rows_in_order(spec, 3)

    assert rows == workloads.rows_in_order(spec, 100)[:3]
    assert {"prompt", "answer", "response"} <= rows[0].keys()


def test_trl_is_rewarded_as_the_built_in_trainer_is(tmp_path: Path) -> None:
    log = trl_program.StepLog(tmp_path)
    prompts = [[{"role": "user", "content": "How many?"}]] * 2
    answers = [[{"role": "assistant", "content": text}] for text in ("1+1=2, 0+0=0. #### 2", "ae")]

    of_math = trl_program.reward_function(log, "")(prompts, answers, [[1, 2], [3]], ["2", "2"])
    of_vowels = trl_program.reward_function(log, workloads.VOWELS)(prompts, answers, [[1, 2], [3]], ["2", "2"])

    assert of_math == [1.0, 0.0]
    assert of_vowels == [0.0, 1.0]
    first = trl_side.read_lines(tmp_path / "steps-0.jsonl")[0]
    assert first == {"kind": "rollout", "prompts": ["How many?"], "lengths": [2, 1], "rewards": of_math}


def test_prompts_ask_for_responses_of_the_lengths_that_are_wanted() -> None:
    for tokens in workloads.LENGTHS:
        ticks = ticks_for(tokens, other_prompt_tokens=30, most=256)
        assert expected_tokens(30 + ticks, ticks, most=256) == pytest.approx(tokens, rel=0.2)


@pytest.mark.proof
def test_responses_of_the_made_model_end_when_their_ticks_say() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.Qwen2Config(vocab_size=512, num_key_value_heads=2, tie_word_embeddings=False, **sizes)
    model = transformers.Qwen2ForCausalLM(config)
    end, tick, special = 1, 2, 0
    with torch.no_grad():
        make_ending(model, tick=tick, end=end, never=[tick, special])
        tokens_BL = torch.cat([torch.full((1, 10), tick), torch.randint(3, 512, (1, 190))], dim=1)
        chances_LV = model(input_ids=tokens_BL).logits[0].softmax(dim=-1)

    median = next(n for n in range(10, 200) if chances_LV[n - 1, end] > 0.5)
    assert chances_LV[: median - 20, end].max() < 0.05
    assert chances_LV[median + 20 :, end].min() > 0.9
    assert 90 < median < 120
    assert chances_LV[:, [tick, special]].max() < 1e-6


def test_the_command_line_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.id for each in command.chosen_workloads("")] == list(workloads.WORKLOADS)
    assert [each.id for each in command.chosen_workloads("sft-30m")] == ["sft-30m"]
    with pytest.raises(SystemExit, match=r"no part 'dpo'.*grpo-demo"):
        command.chosen_workloads("dpo")
    variant = command.variant_of("two updates:train.updates_per_rollout=2,memory.precision=bfloat16")
    assert variant.knobs == {"train.updates_per_rollout": 2, "memory.precision": "bfloat16"}
    with pytest.raises(SystemExit, match="no variant"):
        command.variant_of("updates")


def test_sides_take_turns_and_every_other_round_runs_backwards(tmp_path: Path) -> None:
    order: list[str] = []

    def side(name: str) -> Any:
        return lambda folder, number: order.append(f"{number} {name}") or made(name, 1.0)

    runs = command.alternate({name: side(name) for name in ("ours", "TRL")}, tmp_path, rounds=3, patience=0)

    assert order == ["0 ours", "0 TRL", "1 TRL", "1 ours", "2 ours", "2 TRL"]
    assert {name: len(each) for name, each in runs.items()} == {"ours": 3, "TRL": 3}
