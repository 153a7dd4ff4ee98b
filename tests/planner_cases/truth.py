"""What was measured, with units in the names of the keys. Standard library only."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TRUTH: Mapping[str, str] = {
    "parameters": "all parameters of the model, exactly",
    "active_parameters": "parameters that one token touches, exactly",
    "kv_bytes_per_token": "bytes of bf16 keys and values of a token, exactly",
    "peak_gib": "peak memory of one device, GiB",
    "peak_gb": "peak memory of one device, 10^9 bytes",
    "host_gb": "host memory of one node, 10^9 bytes",
    "step_seconds": "seconds of one optimizer or reinforcement learning step",
    "tokens_per_second_per_device": "tokens of training per second and device",
    "tokens_per_second": "tokens of training per second of the whole job",
    "mfu": "model FLOPs as a share of the peak, recomputation not counted",
    "verdict": "whether it ran: fits or oom",
    "min_devices": "the fewest devices that somebody ran it on",
    "weights_gib": "an engine's weights on one device, GiB",
    "kv_gib": "an engine's cache on one device, GiB",
    "kv_tokens": "tokens that an engine's cache holds",
    "sync_seconds": "seconds of one weight synchronization",
    "transfer_seconds": "the same without moving models and waking engines, which the source times apart",
    "score_seconds": "seconds of one pass without gradients over the tokens of a step",
    "generation_seconds": "seconds to generate one whole batch",
    "decode": "a list of tables: batch, and itl_ms, tokens_per_second or both",
    "phases": "a table of seconds by phase (profiling.phases)",
}
"""What may be measured, and what it means."""

_WORDS = {"fits", "oom"}


class TruthInvalid(ValueError):
    """A truth cannot be read; the text is a sentence that names the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """Decoding with `batch` sequences at once; a number that was not measured is 0.

    `prompt`, `output`: mean tokens of this point, 0 for those of the case.
    """

    batch: int
    itl_ms: float = 0.0
    tokens_per_second: float = 0.0
    prompt: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Everything that was measured of a case: numbers by key of TRUTH."""

    numbers: Mapping[str, float]
    verdict: str = ""
    decode: tuple[Decode, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> float:
        """Peak memory of one device, 0 if it was not measured."""
        return self.numbers.get("peak_gib", 0) * 2**30 or self.numbers.get("peak_gb", 0) * 1e9


def read_truth(table: Mapping[str, Any]) -> Truth:
    """Return a truth. Raises: TruthInvalid for an unknown key (with the nearest), and for what is no number above 0."""
    if not table:
        raise TruthInvalid(f"truth is missing: say what was measured. Known: {', '.join(TRUTH)}.")
    numbers: dict[str, float] = {}
    for key, value in table.items():
        if key not in TRUTH:
            near = difflib.get_close_matches(key, TRUTH, n=1, cutoff=0.4)
            raise TruthInvalid(
                f"there is no key truth.{key}. "
                + (f"Did you mean {near[0]}?" if near else f"Known: {', '.join(TRUTH)}.")
            )
        if key not in ("verdict", "decode", "phases"):
            numbers[key] = _number(f"truth.{key}", value)
    verdict = table.get("verdict", "")
    if verdict and verdict not in _WORDS:
        raise TruthInvalid(f"{verdict!r} is not allowed for truth.verdict. Use fits or oom.")
    if "peak_gib" in numbers and "peak_gb" in numbers:
        raise TruthInvalid("truth has peak_gib and peak_gb. Give one.")
    phases = {key: _number(f"truth.phases.{key}", value) for key, value in dict(table.get("phases", {})).items()}
    return Truth(numbers=numbers, verdict=verdict, decode=_decode(table.get("decode", [])), phases=phases)


def _decode(given: object) -> tuple[Decode, ...]:
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise TruthInvalid(f"{given!r} is not allowed for truth.decode. Use a list of tables with a batch.")
    known = {"batch", "itl_ms", "tokens_per_second", "prompt", "output"}
    for each in given:
        if strange := [key for key in each if key not in known]:
            raise TruthInvalid(f"there is no key truth.decode.{strange[0]}. Known: {', '.join(sorted(known))}.")
        if "batch" not in each:
            raise TruthInvalid("truth.decode: batch is missing.")
    return tuple(
        Decode(**{key: _number(f"truth.decode.{key}", value) for key, value in each.items()})  # type: ignore[arg-type]
        for each in given
    )


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e18:
        raise TruthInvalid(f"{value!r} is not allowed for {where}. Use a number above 0.")
    return value
