"""The guide's advice: for a question, what to change, in the order of trying."""

from typing import Any

from django.utils.translation import gettext as _

from console.guide.parts import (
    Asked,
    algorithm_filter,
    algorithm_words,
    effect_word,
    knob_link,
    said,
    trainer_filter,
    trainer_words,
)
from jobs.catalog.advice import EVIDENCE, QUESTIONS, Advice, by_question
from jobs.catalog.algorithm import algorithms


def tuning_page(asked: Asked) -> dict[str, Any]:
    """Return the context of the tab: one question's advice, and how much there is for each."""
    trainer, algorithm = trainer_filter(asked), algorithm_filter(asked)
    question = asked.get("question", "")
    if question not in QUESTIONS:
        question = next(iter(QUESTIONS))

    def concerns(piece: Advice) -> bool:
        return (not trainer.chosen or not piece.trainers or trainer.chosen in piece.trainers) and (
            not algorithm.chosen or algorithm.chosen in piece.algorithms
        )

    found = {name: [piece for piece in pieces if concerns(piece)] for name, pieces in by_question().items()}
    return {
        "filters": (trainer, algorithm),
        "question": question,
        "questions": [(name, _(words), len(found[name])) for name, words in QUESTIONS.items()],
        "pieces": [_shown(piece) for piece in found[question]],
    }


def _shown(piece: Advice) -> dict[str, Any]:
    return {
        "id": piece.id.partition(".")[2],
        "title": _(piece.title),
        "when": _(piece.when),
        "changes": [knob_link(change.knob, said(change.to)) for change in piece.changes],
        "effects": [(effect_word(key), _(text)) for key, text in piece.effect.items()],
        "trainers": trainer_words(piece.trainers) if piece.trainers else "",
        "algorithms": algorithm_words(piece.algorithms, list(algorithms())),
        "evidence": _(piece.evidence),
        "evidence_words": _(EVIDENCE[piece.evidence]),
        "source": piece.source,
    }
