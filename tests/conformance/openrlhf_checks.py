"""What has to hold of a spec's OpenRLHF command before OpenRLHF's own parser; for the tests and for the proof."""

from pathlib import Path
from typing import Any

from jobs.adapters.adapter import adapter
from jobs.adapters.command_line.options import Argument, knob_arguments
from jobs.adapters.openrlhf.command import CONVERSIONS
from jobs.adapters.openrlhf.options import OURS, SECTIONS, program_of
from jobs.adapters.openrlhf.units import listed
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import is_live
from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.openrlhf_parsers import Parsers, Verdict

RUN_DIR = Path("/srv/runs/r-1/a1")


def trainer_words(spec: RunSpec) -> list[str]:
    """Return the words behind the program's name."""
    argv = adapter("openrlhf").command(spec=spec, run_dir=RUN_DIR, python="python3", device="cuda").argv
    return list(argv[argv.index(f"openrlhf.cli.{program_of(spec.algorithm)}") + 1 :])


def verdict(parsers: Parsers, spec: RunSpec) -> Verdict:
    """Return what the real program makes of the spec's command."""
    processes = spec.workers["policy"]
    return parsers.run(spec.trainer.version, program_of(spec.algorithm), trainer_words(spec), processes=processes)


def wrong_values(parsers: Parsers, spec: RunSpec, found: Verdict) -> list[str]:
    """Return what the real program understood otherwise than it was meant: options, written or not, and devices."""
    options = parsers.options(spec.trainer.version, program_of(spec.algorithm))
    meant: dict[str, Any] = {}
    for word in knob_arguments(spec, CONVERSIONS):
        if word.form != "launcher":
            option = options[word.name]
            meant[option["dest"]] = _meant(word, option)
    written = {name for row in (*SECTIONS, *OURS) for name in (row.dotted, row.flat)}
    wrong = []
    if is_in(spec.algorithm, "rl") and found.gpus != spec.num_workers:
        wrong.append(f"devices: OpenRLHF asks for {found.gpus}, the spec says {spec.num_workers}")
    for name, option in options.items():
        if name in written:
            continue
        expected = meant.get(option["dest"], option["default"])
        if not _is_same(found.parsed.get(option["dest"]), expected):
            wrong.append(f"{name}: {found.parsed.get(option['dest'])!r} instead of {expected!r}")
    return wrong


def errors_of(spec: RunSpec) -> list[str]:
    """Return what our own checks refuse about a spec that OpenRLHF takes."""
    return [f"{found.rule}: {found.message}" for found in findings(spec) if found.level == "error"]


def _meant(word: Argument, option: dict[str, Any]) -> Any:
    if option["nargs"] == 0:
        return option["sets"]
    if word.form == "words":
        return list(listed(word.values[0]))
    return list(word.values) if word.form == "pair" else word.values[0]


def _is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        return [str(_number(item)) for item in found] == [str(_number(item)) for item in expected]
    return found == expected or str(_number(found)) == str(_number(expected))


def _number(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def differences(spec: RunSpec) -> list[str]:
    """Return where the spec that is read back from its own command is another one; knobs without meaning aside."""
    argv = adapter("openrlhf").command(spec=spec, run_dir=RUN_DIR, python="python3", device="cuda").argv
    found = adapter("openrlhf").read_back(arguments=argv, version=spec.trainer.version)
    again = parse_spec(found.spec)
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}
    wrong = [f"not read: {unread}" for unread in (*found.left_out, *found.unread)]
    wrong += [f"taken for another version's: {translated}" for translated in found.translated]
    for knob_id, value in values.items():
        if is_live(knob_id, values) and again.knob(knob_id) != value:
            wrong.append(f"{knob_id}: {again.knob(knob_id)!r} instead of {value!r}")
    for part in ("name", "algorithm", "trainer", "model", "data", "reward"):
        if getattr(again, part) != getattr(spec, part):
            wrong.append(f"{part}: {getattr(again, part)} instead of {getattr(spec, part)}")
    return wrong
