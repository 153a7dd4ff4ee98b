"""Symptoms are known by what programs really print and by numbers, and a remedy is a change that the run can take."""

import argparse
import ast
import importlib.util
import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.catalog.algorithm import algorithms
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import changed, findings
from jobs.catalog.rules.symptom import LogSignal, matches, offers, symptoms
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.trainer import trainers
from tests.conformance.unpacked_wheels import unpacked

WHEELS = {"verl": "verl-0.9.1", "openrlhf": "openrlhf-0.11.2"}
LINES = [(one.id, signal) for one in symptoms().values() for signal in one.logs if signal.file]


def file_of(name: str) -> Path:
    """Return a file of a trainer's wheel, of an installed package or of Python itself, without importing it."""
    package = name.partition("/")[0]
    if package in WHEELS:
        return unpacked(WHEELS[package]) / name
    standard = Path(sysconfig.get_paths()["stdlib"]) / name
    if standard.exists():
        return standard
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None, package
    return Path(spec.origin).parent / name.partition("/")[2]


@pytest.mark.parametrize(("name", "signal"), LINES, ids=[f"{name}-{signal.file}" for name, signal in LINES])
def test_a_line_is_what_the_program_says_word_for_word(name: str, signal: LogSignal) -> None:
    assert signal.text.encode() in file_of(signal.file).read_bytes(), name
    assert signal.pattern.search(signal.text), name


def spec_of(recipe: str, **knobs: object) -> RunSpec:
    raw = to_json(recipes()[recipe].spec)
    raw["knobs"] |= {name.replace("__", "."): value for name, value in knobs.items()}
    return parse_spec(raw)


def found_in(lines: list[str], recipe: str = "openrlhf-grpo-qwen2.5-7b") -> list[str]:
    return [match.symptom.id for match in matches(spec=spec_of(recipe), log_lines=lines, metrics={})]


def last_words(fails: Callable[[], object]) -> list[str]:
    """Return what Python prints when this fails."""
    try:
        fails()
    except BaseException:  # whatever it raises is what is wanted
        return traceback.format_exc().splitlines()
    raise AssertionError("It did not fail.")


def allocate() -> object:
    import torch

    return torch.empty(1 << 60, dtype=torch.uint8)


def run_out_on_a_device() -> object:
    import torch

    raise torch.OutOfMemoryError


def run_out_on_a_node() -> object:
    import ray.exceptions

    raise ray.exceptions.OutOfMemoryError("")


def ask_for_flash_attention() -> object:
    from transformers import LlamaConfig, LlamaForCausalLM

    tiny = LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8, dtype="bfloat16"
    )
    return LlamaForCausalLM._from_config(tiny, attn_implementation="flash_attention_2")


def fill_the_disk() -> object:
    with Path("/dev/full").open("wb", buffering=0) as full:
        return full.write(b"x")


def kv_cache(available: int) -> object:
    """Run vLLM's own check; its package takes long to import, so the function alone is compiled."""
    file = file_of("vllm/v1/core/kv_cache_utils.py")
    nodes = ast.parse(file.read_text("utf-8")).body
    wanted: list[ast.stmt] = [
        n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "_check_enough_kv_cache_memory"
    ]
    names: dict[str, object] = {"Callable": Callable, "format_gib": str}
    exec(compile(ast.Module(body=wanted, type_ignores=[]), str(file), "exec"), names)
    check = names["_check_enough_kv_cache_memory"]
    assert callable(check)
    return check(available, lambda: 2, 4096, lambda given: given)


@pytest.mark.parametrize(
    ("fails", "symptom"),
    [
        (run_out_on_a_device, "memory.device"),
        (run_out_on_a_node, "memory.host"),
        (allocate, "memory.host"),
        (lambda: bytearray(1 << 62), "memory.host"),
        (lambda: kv_cache(0), "memory.cache_small"),
        (lambda: kv_cache(1), "memory.cache_small"),
        (ask_for_flash_attention, "start.flash_attention"),
        (lambda: importlib.import_module("flash_attention_of_nobody"), "start.missing_package"),
        (fill_the_disk, "machine.disk_full"),
    ],
    ids=["cuda", "ray", "torch", "python", "no-cache", "small-cache", "transformers", "import", "disk"],
)
def test_a_real_failure_is_recognized(fails: Callable[[], object], symptom: str) -> None:
    assert found_in(last_words(fails)) == [symptom]


def test_a_parsers_refusal_is_recognized(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        argparse.ArgumentParser(prog="train_ppo_ray").parse_args(["--actor_learning_rate", "1e-6"])

    assert found_in(capsys.readouterr().err.splitlines()) == ["start.unknown_options"]


def test_what_only_a_gpu_can_say_is_recognized_as_people_reported_it() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 350.00 MiB. GPU 0 has a total capacity of 23.68 "
    )

    assert found_in([line]) == ["memory.device"]  # vllm-project/vllm, issue 16343


def test_the_evidence_is_the_line_and_a_remedy_is_a_change() -> None:
    lines = ["step 1", *last_words(run_out_on_a_device)]
    spec = spec_of("openrlhf-grpo-qwen2.5-7b", train__dynamic_batch=False, train__micro_batch_size=4)

    (match,) = matches(spec=spec, log_lines=lines, metrics={})

    assert [evidence.text for evidence in match.evidence] == [lines[-1]]
    first = match.remedies[0]
    assert first.title == "Halve the micro batch"
    assert first.fix is not None
    assert dict(first.fix.changes) == {"train.micro_batch_size": 2}
    titles = [remedy.title for remedy in match.remedies]
    assert "Recompute activations in the backward pass" not in titles  # the run does so already


def test_a_symptom_of_numbers_says_which() -> None:
    spec = spec_of("verl-grpo-qwen3-8b")

    (match,) = matches(spec=spec, log_lines=[], metrics={"kl/reference": [0.1] * 5 + [0.6] * 10})

    assert match.symptom.id == "learning.kl_runs_away"
    assert match.evidence[0].text == "KL to reference: the median of the last 10 values is 0.6, above 0.5"


@pytest.mark.parametrize(
    ("symptom", "metrics", "text"),
    [
        (
            "learning.no_signal",
            {"groups/zero_variance_fraction": [1.0, 0.875] * 10},
            "Zero-variance groups: 93.8 % on average of the last 10 values, surely above 80 %",
        ),
        (
            "learning.does_not_converge",
            {"reward/correct": [0.2] * 10 + [0.6] * 20 + [0.2] * 20},
            "Correct: fell from 0.6 to 0.2 (levels of 10 values or more)",
        ),
        (
            "learning.entropy_collapse",
            {"policy/entropy": [1.0] * 10 + [0.01] * 20, "reward/mean": [0.1] * 30},
            "Entropy: the median of the last 10 values is 0.01, below 0.03; "
            "Entropy: from 1 at the start to 0.01 (level of 10 values); "  # two conditions say the same
            "Reward: no sure rise in the last 20 values (z = 0, below 2)",
        ),
    ],
)
def test_a_sentence_names_figure_value_and_bound(symptom: str, metrics: dict[str, list[float]], text: str) -> None:
    found = {
        match.symptom.id: match for match in matches(spec=spec_of("verl-grpo-qwen3-8b"), log_lines=[], metrics=metrics)
    }

    assert found[symptom].evidence[0].text == text


def test_evidence_and_remedies_speak_the_readers_language() -> None:
    numbers = {"kl/reference": [2.6] * 10}

    (match,) = matches(
        spec=spec_of("verl-grpo-qwen3-8b"),
        log_lines=[],
        metrics=numbers,
        say=lambda text: text if "{" in text else text.upper(),
    )

    assert match.remedies[0].title == "HALVE THE LEARNING RATE"


_LONGER: dict[str, list[float | None]] = {
    "reward/mean": [0.3 + 0.015 * step + 0.01 * (step % 3) for step in range(40)],
    "response/length_mean": [100.0 + 4 * step for step in range(40)],
}


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        ({"kl/reference": [0.6] * 9}, []),  # too early to say
        ({"kl/reference": [0.6] * 5 + [0.4] * 10}, []),
        ({"response/truncated_fraction": [0.2] * 20}, ["learning.truncated"]),
        ({"response/truncated_fraction": [0.9 - 0.02 * step for step in range(25)]}, []),  # it learns to be brief
        ({"time/rollout_seconds": [8.0] * 10, "time/step_seconds": [10.0] * 10}, ["speed.rollout_dominates"]),
        ({"time/rollout_seconds": [8.0] * 10}, []),
        ({"reward/std": [0.0] * 20}, ["learning.no_signal"]),
        ({"policy/entropy": [0.02] * 40}, []),  # low, but it holds
        (
            {"policy/entropy": [0.08 / (1 + step) for step in range(40)], "reward/mean": [0.39, 0.4, 0.41, 0.4] * 10},
            ["learning.entropy_collapse", "learning.reward_stays_flat"],
        ),
        (  # the same numbers of a policy that knows the answers
            {
                "policy/entropy": [0.08 / (1 + step) for step in range(40)],
                "groups/zero_variance_fraction": [0.9] * 40,
                "reward/mean": [min(1.0, 0.3 + 0.05 * step) for step in range(40)],
                "eval/accuracy": [0.3, 0.8, 0.97, 0.98],
            },
            ["learning.solved"],
        ),
        (_LONGER, ["learning.reward_with_length"]),  # which a reward that pays for length would show as well
        (
            _LONGER | {"reward/mean": [min(1.0, 0.3 + 0.03 * step) for step in range(40)]},  # its most is 1
            ["learning.reward_at_most", "learning.reward_with_length"],
        ),
        (_LONGER | {"eval/accuracy": [0.3, 0.5, 0.7]}, []),
        (_LONGER | {"reward/correct": _LONGER["reward/mean"]}, []),
        ({"reward/mean": [0.3, 0.31, 0.29] * 5 + [0.3, 0.31, 0.29] * 4}, []),  # too early to call it flat
        ({"reward/mean": [0.3, 0.31, 0.29] * 12}, ["learning.reward_stays_flat"]),
        ({"policy/clip_fraction": [0.4] * 10}, ["learning.updates_too_far"]),
        ({"loss/policy": [0.1, float("nan")]}, ["learning.not_a_number"]),
        ({"loss/policy": [0.1, None]}, ["learning.not_a_number"]),
        ({"sync/mean_probability_diff": [0.02] * 10}, ["learning.mismatch"]),
        ({"correction/effective_sample_fraction": [0.1] * 10}, ["learning.samples_too_old"]),
        ({"throughput/policy_mfu": [0.05] * 10}, ["speed.low_mfu"]),
        ({}, []),
    ],
)
def test_numbers_are_held_against_thresholds(metrics: dict[str, list[float | None]], wanted: list[str]) -> None:
    found = matches(spec=spec_of("verl-grpo-qwen3-8b"), log_lines=[], metrics=metrics)

    assert [match.symptom.id for match in found] == wanted


@pytest.mark.parametrize(
    ("explained", "wanted"),
    [
        ([0.2] * 38 + [-5.8, -5.4], []),  # two steps whose returns hardly differed
        ([-0.2] * 38 + [0.1, 0.1], ["learning.critic_off"]),
        ([-0.2] * 30, []),  # a new head
    ],
)
def test_a_critic_is_judged_by_most_of_its_steps(explained: list[float | None], wanted: list[str]) -> None:
    found = matches(spec=spec_of("native-ppo-demo"), log_lines=[], metrics={"value/explained_variance": explained})

    assert [match.symptom.id for match in found] == wanted


def test_what_the_log_tells_comes_before_what_numbers_tell() -> None:
    lines = last_words(run_out_on_a_device)

    found = matches(spec=spec_of("verl-grpo-qwen3-8b"), log_lines=lines, metrics={"kl/reference": [2.6] * 10})

    assert [match.evidence[0].kind for match in found] == ["log", "metric"]


def test_a_healthy_log_has_no_symptom() -> None:
    lines = ["Training starts.", "step 3: reward 0.4, 2 memory samples", "nccl INFO comm 0x1 rank 0", "OutOfMemory? no"]

    assert found_in(lines) == []


@pytest.mark.parametrize(
    ("cause", "wanted"),
    [
        ("policy rank 1 was killed in step 12 (SIGKILL), from outside or by a limit of its container", True),
        ("the driver was killed while saving after step 60 (SIGKILL), from outside", True),
        ("policy rank 1 was killed because the node ran out of memory. Use a smaller model or batch", True),
        ("policy rank 1 was killed by Ray because the node ran low on memory", True),
        ("the runner was killed, and the trainer with it, in step 3", True),
        ("lost a node of the cluster", True),
        ("His brother, a lieutenant-general, was killed at the siege of Belgrade.", False),  # a sample in a verl log
    ],
)
def test_a_loss_is_known_by_its_cause_and_not_by_what_samples_tell(cause: str, wanted: bool) -> None:
    raw = to_json(spec_of("verl-grpo-qwen3-8b"))
    raw["knobs"]["checkpoint.every_steps"] = 0

    found = matches(spec=parse_spec(raw), log_lines=[cause], metrics={})

    assert ("machine.no_checkpoints" in [match.symptom.id for match in found]) is wanted


def test_an_actor_whose_own_code_raises_is_not_lost() -> None:
    dead = "ray.exceptions.ActorDiedError: The actor died"

    assert found_in([f"{dead} because of an error raised in its creation task, ray::WorkerDict.__init__()"]) == []
    assert found_in([f"{dead} unexpectedly before finishing this task."])[0] == "machine.lost_worker"


def kinds() -> dict[str, RunSpec]:
    """Return one spec per trainer, algorithm and engine, among the recipes."""
    found: dict[tuple[str, ...], str] = {}
    for one in recipes().values():
        engine = str(one.spec.values().get("parallel.engine", ""))
        found.setdefault((one.spec.trainer.name, one.spec.algorithm, engine), one.id)
    return {name: recipes()[name].spec for name in found.values()}


@pytest.mark.parametrize("name", kinds())
def test_every_remedy_is_a_change_that_the_run_can_take(name: str) -> None:
    spec = kinds()[name]
    before = {found.rule for found in findings(spec) if found.level == "error"}
    for one in symptoms().values():
        if spec.algorithm not in one.algorithms or (one.trainers and spec.trainer.name not in one.trainers):
            continue
        for offer in offers(one, spec):
            if offer.fix is not None:
                after = parse_spec(to_json(changed(spec, offer.fix.changes)))
                new = {found.rule: found.message for found in findings(after) if found.level == "error"}
                assert set(new) <= before, f"{one.id}: {offer.title}: {new}"


@pytest.mark.parametrize("algorithm", algorithms())
@pytest.mark.parametrize("trainer", [name for name, info in trainers().items() if info.package])
def test_whoever_runs_out_of_device_memory_is_offered_less_at_a_time(trainer: str, algorithm: str) -> None:
    if algorithm not in trainers()[trainer].algorithms:
        return
    raw: dict[str, object] = {"algorithm": algorithm, "trainer": {"name": trainer}}
    raw["knobs"] = {"train.micro_batch_size": 4}
    if "train.dynamic_batch" in parse_spec(raw).knobs:
        raw["knobs"] = {"train.micro_batch_size": 4, "train.dynamic_batch": False}

    offered = [dict(one.fix.changes) for one in offers(symptoms()["memory.device"], parse_spec(raw)) if one.fix]

    assert {"train.micro_batch_size": 2} in offered


def test_a_change_that_rules_refuse_is_not_offered() -> None:
    spec = spec_of("verl-grpo-long-context-qwen2.5-7b")  # four devices share a sequence: that needs packing

    offered = offers(symptoms()["start.flash_attention"], spec)

    assert [offer.fix for offer in offered] == [None]


def test_every_symptom_says_how_it_shows_why_and_what_to_do() -> None:
    for one in symptoms().values():
        assert one.signal.endswith(".")
        assert one.causes
        assert one.remedies
        assert one.source
        assert all(remedy.source for remedy in one.remedies)


def test_the_guides_symptoms_are_all_there() -> None:
    refs = {ref.strip() for one in symptoms().values() for ref in one.ref.split(",")}

    assert {f"U{number:02}" for number in range(1, 26)} <= refs
    assert {f"Q{number:02}" for number in range(1, 11)} <= refs


SAID = '[a]\ntitle = "A"\nsignal = "S."\ncauses = ["C."]\nsource = "D"\nremedies = []\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SAID + "colour = 1", "f.a: a symptom has no key 'colour'"),
        (SAID.replace('causes = ["C."]\n', ""), "f.a: the symptom says nothing under 'causes'"),
        (SAID + 'trainers = ["nobody"]', "f.a: there is no trainer 'nobody'"),
        (SAID + 'logs = [{ pattern = "(", source = "s" }]', "f.a: '(' is no regular expression"),
        (SAID + 'logs = [{ pattern = "a", origin = "s" }]', "f.a: a line of the log has no key 'origin'"),
        (
            SAID + 'metrics = [{ all = [{ metric = "x", statistic = "mean", above = 1 }], source = "s" }]',
            "f.a: there is no metric 'x' in the dictionary",
        ),
        (
            SAID + 'metrics = [{ all = [{ metric = "reward/mean", statistic = "mode", above = 1 }], source = "s" }]',
            "f.a: 'mode' is no statistic",
        ),
        (
            SAID + 'metrics = [{ all = [{ metric = "reward/mean", statistic = "mean" }], source = "s" }]',
            "f.a: a condition has one bound",
        ),
        (
            SAID.replace("[]", '[{ title = "t", source = "s", change = { "x.y" = "1" } }]'),
            "f.a: there is no knob 'x.y'",
        ),
        (SAID.replace("[]", '[{ title = "t", source = "s", whenever = "1" }]'), "f.a: a remedy has no key 'whenever'"),
    ],
)
def test_a_bad_table_is_named(text: str, says: str, other_catalogue: Path) -> None:
    folder = other_catalogue / "symptoms"
    folder.mkdir()
    (folder / "f.toml").write_text(text)

    with pytest.raises(ValueError, match=re.escape(says)):
        symptoms.__wrapped__()
