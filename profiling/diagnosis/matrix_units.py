"""Which kernels use a device's matrix units (tensor cores, MFMA), by their names: what matrix_units.toml knows."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

Answer = Literal["uses", "does not", "not known", "by types", "none"]
ANSWERS: tuple[Answer, ...] = ("uses", "does not", "not known", "by types", "none")
FILE = Path(__file__).with_name("matrix_units.toml")

_LONGEST = 2000  # characters of a name that are looked at
_SHORT = frozenset(
    ("bfloat16", "half", "float16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "signed char")
)
_LONG = frozenset(("float", "double"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFamily:
    """Kernels of one naming: what matches `pattern` answers as `answer`; `examples` are names as traces have them."""

    name: str
    pattern: re.Pattern[str]
    answer: Answer
    examples: tuple[str, ...]
    ref: str


@cache
def families() -> tuple[KernelFamily, ...]:
    """Return the table in its order. Raises: ValueError for an answer that there is not."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["family"]
    for row in rows:
        if row["answer"] not in ANSWERS:
            raise ValueError(f"answer of {row['name']}: {row['answer']!r} is none of {', '.join(ANSWERS)}.")
    return tuple(
        KernelFamily(
            name=row["name"],
            pattern=re.compile(row["pattern"], 0 if row.get("is_case_sensitive") else re.IGNORECASE),
            answer=cast(Answer, row["answer"]),
            examples=tuple(row["examples"]),
            ref=row["ref"],
        )
        for row in rows
    )


def answer_of(name: str) -> Answer:
    """Return whether a kernel of this name uses matrix units; "none" for one that is no matrix product."""
    text = name[:_LONGEST]
    return next((family.answer for family in families() if family.pattern.search(text)), "none")


def answer_by_types(types: object) -> Answer:
    """Return it for a kernel whose launching operator has these recorded types of inputs ("Input type" of a trace)."""
    names = {str(one).removeprefix("c10::").lower() for one in types} if isinstance(types, list) else set()
    return "uses" if names & _SHORT and not names & _LONG else "not known"


def has_matrix_units(device: dict[str, object]) -> bool:
    """Return False for a device, as a trace describes it, that has none: NVIDIA's before Volta."""
    major, name = device.get("computeMajor"), str(device.get("name", ""))
    is_nvidia = not re.search(r"AMD|Instinct|Radeon|gfx", name)
    return not (is_nvidia and isinstance(major, int) and 0 < major < 7)
