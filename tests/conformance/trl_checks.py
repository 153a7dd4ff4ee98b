"""What has to hold of a spec's TRL command before TRL's own parser; for the tests and for the proof."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from jobs.adapters.adapter import adapter
from jobs.adapters.command_line.options import knob_arguments
from jobs.adapters.command_line.services import services_of
from jobs.adapters.trl.options import OURS, SCRIPTS, SECTIONS
from jobs.adapters.trl.units import CONVERSIONS, NEVER
from jobs.catalog.knob import is_live
from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.unpacked_wheels import unpacked

RUN_DIR = Path("/srv/runs/r-1/a1")
SCRIPT = Path(__file__).with_name("trl_parser.py")


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

    def run(self, program: str, words: list[str], files: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return what a program makes of the words, beside files that they name."""
        _ = self.options  # which come first
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"program": program, "words": words, "files": files or {}}) + "\n")
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


def argv_of(spec: RunSpec) -> list[str]:
    """Return the command that a spec is launched with."""
    return list(adapter("trl").command(spec=spec, run_dir=RUN_DIR, python="python3", device="cuda").argv)


def words_of(spec: RunSpec) -> list[str]:
    """Return the words behind the script's name, on CPU, and without DeepSpeed's file, which is not there."""
    argv = argv_of(spec)
    words = argv[argv.index(f"trl.scripts.{SCRIPTS[spec.algorithm]}") + 1 :]
    if "--deepspeed" in words:
        at = words.index("--deepspeed")
        del words[at : at + 2]
    return [*words, "--use_cpu", "true"]


def configs_of(spec: RunSpec) -> dict[str, str]:
    """Return the configurations that the command names, by path."""
    launch = adapter("trl").command(spec=spec, run_dir=RUN_DIR, python="python3", device="cuda")
    return {path: text for path, text in launch.files.items() if path.endswith(".yaml")}


def refusal(parsers: TrlParsers, spec: RunSpec) -> str:
    """Return why the real program does not take the spec's command; "" if it does."""
    answer = parsers.run(SCRIPTS[spec.algorithm], words_of(spec), configs_of(spec))
    return "" if answer["accepted"] else str(answer["text"]) or "It says no without a word."


def objections(parsers: TrlParsers, spec: RunSpec) -> list[str]:
    """Return why the real program does not take the spec's command, or which values arrive otherwise than meant."""
    answer = parsers.run(SCRIPTS[spec.algorithm], words_of(spec), configs_of(spec))
    if not answer["accepted"]:
        return [answer["text"] or "It says no without a word."]
    return wrong_values(spec, answer["parsed"], parsers.options[SCRIPTS[spec.algorithm]])


def differences(spec: RunSpec) -> list[str]:
    """Return where the spec that is read back from the command is another one than the one it was written from."""
    again = adapter("trl").read_back(arguments=argv_of(spec), version=spec.trainer.version)
    wrong = [f"{each.option}: {each.why}" for each in (*again.left_out, *again.unread)]
    values, read = spec.values(), parse_spec(again.spec)
    for knob_id in spec.knobs:
        if is_live(knob_id, values) and read.knob(knob_id) != spec.knob(knob_id):
            wrong.append(f"{knob_id} reads back as {read.knob(knob_id)!r} instead of {spec.knob(knob_id)!r}")
    return wrong


def errors_of(spec: RunSpec) -> list[str]:
    """Return what our own checks refuse about a spec that TRL takes."""
    return [f"{found.rule}: {found.message}" for found in findings(spec) if found.level == "error"]


def wrong_values(spec: RunSpec, parsed: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """Return what the real program understood otherwise than it was meant: options, written or not."""
    meant: dict[str, Any] = {}
    for argument in knob_arguments(spec, CONVERSIONS):
        if argument.form not in ("launcher", "mixed_precision", "zero_config") and argument.values[0] != NEVER:
            meant[argument.name] = argument.values[0]
    wrong = []
    derived = {*OURS, *SECTIONS, "--report_to", "--bf16", "--fp16", "--deepspeed", "--config", *_DERIVED}
    for name, option in options.items():
        if name in derived or name.startswith("--no_"):
            continue
        value, expected = parsed[name.removeprefix("--").replace("-", "_")], meant.get(name, option["default"])
        if not is_same(value, expected):
            wrong.append(f"{name}: {value!r} instead of {expected!r}")
    if parsed["report_to"] != (loggers := ["tensorboard", *services_of(spec)]):
        wrong.append(f"--report_to: {parsed['report_to']} instead of {loggers}")
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


def is_same(value: Any, expected: Any) -> bool:
    """Return True if a parsed value is the one that was meant."""
    if isinstance(value, list) and isinstance(expected, str):  # of options that take several
        return value in ([expected], [part.strip() for part in expected.split(",")])
    if isinstance(value, bool) or isinstance(expected, bool) or value is None or expected is None:
        return value is expected or (value is None and expected == "none")
    try:
        return float(value) == float(expected)
    except (TypeError, ValueError):
        return str(value) == str(expected)
