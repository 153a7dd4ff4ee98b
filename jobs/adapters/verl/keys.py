"""Every key that a version of verl has, with verl's default: `known_keys/verl-<version>.json`, by program.

Made from the composed configs of the wheel by `tests/conformance/write_verl_keys.py`; the conformance tests hold the
files against the real composition. Keys that only the Megatron configs have stand under `<program>/megatron`, those
that only the others have under `<program>/megatron lacks`.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from jobs.adapters.command_line.hydra import Plain

MEGATRON, WITHOUT = "/megatron", "/megatron lacks"


@cache
def _tables(version: str) -> Mapping[str, Mapping[str, Plain]]:
    text = (files("jobs.adapters.verl") / "known_keys" / f"verl-{version}.json").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Plain]] = json.loads(text)
    return tables


@cache
def keys_of(program: str, version: str) -> Mapping[str, Plain]:
    """Return key -> default of a program (main_ppo, sft_trainer) of a version; with Megatron's keys, which come last.

    Raises: FileNotFoundError for a version whose keys nobody has written down.
    """
    tables = _tables(version)
    return {**tables.get(program + MEGATRON, {}), **tables[program]}


def has_key(program: str, version: str, name: str, *, is_megatron: bool) -> bool:
    """Return True if the config of the chosen engine takes a key. A key with "+" is taken wherever its branch is."""
    tables = _tables(version)
    if name.startswith("+"):
        return is_megatron or ".megatron." not in name
    if is_megatron:
        return name in tables.get(program + MEGATRON, {}) or (
            name in tables[program] and name not in tables.get(program + WITHOUT, {})
        )
    return name in tables[program]


def nearest(key: str, keys: Iterable[str]) -> str:
    """Return the known key that was most likely meant, or "": the same last words, else the most similar one."""
    among = list(keys)
    tail = key.split(".")[-1]
    ending = [other for other in among if other.split(".")[-1] == tail]
    matches = difflib.get_close_matches(key, ending or among, n=1, cutoff=0.5 if ending else 0.75)
    return next(iter(matches or ending[:1]), "")
