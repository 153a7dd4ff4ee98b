"""Pairs of a chosen and a rejected response: the two conversations of a row, and which of their tokens count.

Imports no torch.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.dataset import Row
from jobs.engine.data.messages import Message, kind_of
from jobs.engine.data.text import TextModel, TextSegment, TokenizedText, Variables
from jobs.engine.problem import RunProblem

MARGIN_COLUMN = "margin"
"""Where data sets have the margin of a pair."""


def conversation_of(prompt: Sequence[Message], answer: Sequence[Message]) -> list[Message]:
    """Return the prompt continued by one answer; an answer that begins with a question brings its prompt along."""
    if not prompt or answer[0]["role"] == "assistant":
        return [*prompt, *answer]
    has_system = any(message["role"] == "system" for message in answer)
    return [*(m for m in prompt if m["role"] == "system" and not has_system), *answer]


def shared_messages(first: Sequence[Message], second: Sequence[Message]) -> list[Message]:
    """Return the messages with which both conversations begin: what the two answers answer."""
    shared = []
    for one, other in zip(first[:-1], second[:-1], strict=False):
        if one != other:
            break
        shared.append(one)
    return shared


def tokenized(
    conversations: Sequence[Sequence[Message]], variables: Sequence[Variables], text: TextModel
) -> list[tuple[tuple[TextSegment, ...], TokenizedText]]:
    """Return the segments and the tokens of each conversation, rendered once each."""
    segments = [tuple(text.conversation(m, v)) for m, v in zip(conversations, variables, strict=True)]
    return list(zip(segments, text.tokenize(segments), strict=True))


def without_shared_turns(first: TokenizedText, second: TokenizedText) -> tuple[TokenizedText, TokenizedText]:
    """Return both conversations with the turns that they share no longer trained.

    Such a turn is a run of trained tokens that ends before the first token in which the two differ. The run in which
    they part counts from its begin on, as all of an answer does.
    """
    same = 0
    for one, other in zip(first.tokens, second.tokens, strict=False):
        if one != other:
            break
        same += 1
    return _trained_after(first, same), _trained_after(second, same)


def _trained_after(text: TokenizedText, same: int) -> TokenizedText:
    begin = min(same, len(text.tokens))
    while 0 < begin < len(text.tokens) and text.is_trained[begin] and text.is_trained[begin - 1]:
        begin -= 1
    return replace(text, is_trained=tuple(i >= begin and is_trained for i, is_trained in enumerate(text.is_trained)))


def margin_of(spec: RunSpec, row: Row, number: int) -> float:
    """Return by how much the chosen response of a row is to score higher: its column `margin`, 0 where the run reads
    none. Raises: RunProblem naming `pairs.margin` if that is no finite number.
    """
    if "pairs.margin" not in spec.knobs or not spec.knob("pairs.margin"):
        return 0.0
    margin = row.get(MARGIN_COLUMN)
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not math.isfinite(margin):
        raise RunProblem(
            "knobs.pairs.margin",
            f"Row {number + 1} has no number in column {MARGIN_COLUMN!r}, but {kind_of(margin)}. Switch margins off, "
            "or give each pair one.",
        )
    return float(margin)
