"""TRL takes what we write and means by it what we mean: its own parsers and configurations say so."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.command_line.options import knob_arguments
from jobs.adapters.trl.options import OURS, PER_NODE, PROGRAMS, SECTIONS, TRAINER, defaults_of, knob_options
from jobs.adapters.trl.units import CONVERSIONS, NEVER
from jobs.catalog.knob import is_live, knob_flags
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.specs import coverage
from tests.conformance.trl_specs import VERSIONS, reachable, specs_of
from tests.conformance.unpacked_wheels import unpacked
from tests.conformance.write_trl_options import text_of

RUN_DIR = Path("/srv/runs/r-1/a1")
SCRIPT = Path(__file__).with_name("trl_parser.py")
NUMBER = int(os.environ.get("PITWALL_CONFORMANCE_SPECS", "48"))


class TrlParsers:
    """The parsers of one version's programs, in a process of their own."""

    def __init__(self, version: str) -> None:
        self.version = version
        command = [sys.executable, str(SCRIPT), str(unpacked(f"trl-{version}"))]
        environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
        )

    @cached_property
    def options(self) -> dict[str, dict[str, Any]]:
        """Every option by program and name."""
        return self._answer()

    def run(self, program: str, words: list[str]) -> dict[str, Any]:
        """Return what a program makes of the words."""
        _ = self.options  # which come first
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"program": program, "words": words}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@pytest.fixture(scope="module", params=VERSIONS)
def parsers(request: pytest.FixtureRequest) -> Iterator[TrlParsers]:
    running = TrlParsers(request.param)
    yield running
    running.close()


def argv_of(spec: RunSpec) -> list[str]:
    return list(adapter("trl").command(spec=spec, run_dir=RUN_DIR, python="python3", device="cuda").argv)


def words_of(spec: RunSpec) -> list[str]:
    """Return the words behind the script's name, on CPU, and without DeepSpeed's file, which is not there."""
    argv = argv_of(spec)
    words = argv[argv.index(f"trl.scripts.{spec.algorithm}") + 1 :]
    if "--deepspeed" in words:
        at = words.index("--deepspeed")
        del words[at : at + 2]
    return [*words, "--use_cpu", "true"]


def test_the_known_options_are_those_of_the_wheel(parsers: TrlParsers) -> None:
    tables = {name: defaults_of(name, parsers.version) for name in PROGRAMS}

    assert json.dumps(tables, indent=1, sort_keys=True) + "\n" == text_of(parsers.options)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_flag_has_the_programs_own_default_and_takes_what_it_takes(program: str, parsers: TrlParsers) -> None:
    options = parsers.options[program]
    wrong = []
    for knob, flag in knob_flags(program, TRAINER, parsers.version).values():
        for name in flag.names if flag.form != "launcher" else ():
            option = options[name]
            if flag.default is not None and not _is_same(option["default"], flag.default):
                wrong.append(f"{knob.id} {name}: {flag.default} instead of {option['default']}")
            for choice in knob.choices if flag.form == "value" and option["choices"] is not None else ():
                if flag.values.get(choice, choice) not in option["choices"]:
                    wrong.append(f"{knob.id} {name}: {choice} is no choice")
    assert wrong == []


def test_the_real_program_takes_every_command_as_it_is_meant_and_it_reads_back_as_the_spec(
    parsers: TrlParsers,
) -> None:
    for spec in specs_of(parsers.version, NUMBER):
        answer = parsers.run(spec.algorithm, words_of(spec))

        assert answer["accepted"], f"{spec.algorithm}: {answer['text']}"
        assert wrong_values(spec, answer["parsed"], parsers.options[spec.algorithm]) == []
        assert [each.rule for each in findings(spec) if each.level == "error"] == []
        again = adapter("trl").read_back(arguments=argv_of(spec), version=parsers.version)
        assert [(each.option, each.why) for each in (*again.left_out, *again.unread)] == []
        values, read = spec.values(), parse_spec(again.spec)
        assert {k: read.knob(k) for k in spec.knobs if is_live(k, values)} == {
            k: spec.knob(k) for k in spec.knobs if is_live(k, values)
        }


@pytest.mark.parametrize("recipe", [name for name in recipes() if name.startswith("trl-")])
def test_the_real_program_takes_every_recipe(recipe: str, parsers: TrlParsers) -> None:
    spec = recipes()[recipe].spec

    answer = parsers.run(spec.algorithm, words_of(spec))

    assert answer["accepted"], answer["text"]
    assert wrong_values(spec, answer["parsed"], parsers.options[spec.algorithm]) == []


def test_what_trl_itself_refuses_is_refused_here_at_the_right_field(parsers: TrlParsers) -> None:
    """Its configuration divides the rollout among prompts and micro-batches, as the rules do."""
    odd = {"rollout.prompts_per_step": 3, "rollout.samples_per_prompt": 5, "train.micro_batch_size": 4}
    spec = parse_spec({"algorithm": "grpo", "trainer": {"name": "trl"}, "knobs": odd})

    answer = parsers.run("grpo", words_of(spec))

    assert not answer["accepted"]
    assert "must be divisible by the global batch size" in answer["text"]
    assert "batch.trl_rollout_does_not_divide" in {each.rule for each in findings(spec) if each.level == "error"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_specs_set_every_knob(version: str) -> None:
    seen = coverage(specs_of(version, max(NUMBER, 120)))
    knobs = {knob.id: knob for name in PROGRAMS for knob, _ in knob_flags(name, TRAINER, version).values()}

    assert [k for k, knob in knobs.items() if not seen[k] and reachable(knob)] == []
    assert set(PER_NODE) & {name for p in PROGRAMS for name in knob_options(p, version)} == set()


def wrong_values(spec: RunSpec, parsed: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """Return what the real program understood otherwise than it was meant: options, written or not."""
    meant: dict[str, Any] = {}
    for argument in knob_arguments(spec, CONVERSIONS):
        if argument.form not in ("launcher", "mixed_precision", "zero_config") and argument.values[0] != NEVER:
            meant[argument.name] = argument.values[0]
    wrong = []
    derived = {*OURS, *SECTIONS, "--bf16", "--fp16", "--deepspeed", "--config", *_DERIVED}
    for name, option in options.items():
        if name in derived or name.startswith("--no_"):
            continue
        value, expected = parsed[name.removeprefix("--").replace("-", "_")], meant.get(name, option["default"])
        if not _is_same(value, expected):
            wrong.append(f"{name}: {value!r} instead of {expected!r}")
    precision = spec.knob("memory.precision")
    if (parsed["bf16"], parsed["fp16"]) != (precision == "bfloat16", precision == "float16"):
        wrong.append(f"precision: {parsed['bf16']} {parsed['fp16']}")
    return wrong


_DERIVED = (  # which the configuration fills in itself
    "--generation_batch_size",
    "--steps_per_generation",
    "--eval_steps",
    "--accelerator_config",
    "--dataloader_pin_memory",
    "--debug",
    "--torch_compile_backend",
    "--pad_to_multiple_of",
    "--do_eval",
    "--save_steps",
)


def _is_same(value: Any, expected: Any) -> bool:
    if isinstance(value, list) and isinstance(expected, str):  # of options that take several
        return value in ([expected], [part.strip() for part in expected.split(",")])
    if isinstance(value, bool) or isinstance(expected, bool) or value is None or expected is None:
        return value is expected or (value is None and expected == "none")
    try:
        return float(value) == float(expected)
    except (TypeError, ValueError):
        return str(value) == str(expected)
