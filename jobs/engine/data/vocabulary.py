"""Whether two models mean the same by the same number: the tokens of their tokenizers. Imports no torch."""

from pathlib import Path
from typing import Any

from jobs.engine.data.model_files import read_json

_SHOWN = 3


def differing_tokens(one: tuple[Path, str], other: tuple[Path, str]) -> str:
    """Return how the vocabularies of two folders differ, as the middle of a sentence; "" where they do not.

    Each folder comes with the field of the spec that a file which cannot be read is about. Raises: RunProblem.
    """
    ours, theirs = (_ids(folder, field=field) for folder, field in (one, other))
    if ours == theirs:
        return ""
    differing = sorted(token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token))
    shown = ", ".join(repr(token) for token in differing[:_SHOWN])
    return f"{len(theirs)} tokens and {len(ours)}, of which {len(differing)} have other ids, such as {shown}"


def _ids(folder: Path, *, field: str) -> dict[str, int]:
    """Return the id of each token of a tokenizer.json, added ones included."""
    table = read_json(folder / "tokenizer.json", field=field)
    model: Any = table.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of Unigram models: pairs of token and score, in the order of ids
        vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
    added: Any = table.get("added_tokens") or []
    return {**(vocabulary or {}), **{entry["content"]: entry["id"] for entry in added}}
