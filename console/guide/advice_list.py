"""The guide's advice: for a question, what to change, in the order of trying."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.guide.parts import (
    Asked,
    KnobLink,
    algorithm_filter,
    algorithm_words,
    effect_word,
    knob_link,
    shown_text,
    trainer_filter,
    trainer_words,
)
from jobs.catalog.advice import EVIDENCE, QUESTIONS, Advice, by_question
from jobs.catalog.algorithm import algorithms


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceDetail:
    """One piece of advice as the guide shows it; `effects` are what it acts on, and how."""

    id: str
    title: str
    when: str
    changes: list[KnobLink]
    effects: list[tuple[str, str]]
    trainers: str
    algorithms: str
    evidence: str
    evidence_words: str
    source: str


def tuning_page(query: Asked) -> dict[str, object]:
    """Return the context of the tab: one question's advice, and how much there is for each."""
    trainer, algorithm = trainer_filter(query), algorithm_filter(query)
    question = query.get("question", "")
    if question not in QUESTIONS:
        question = next(iter(QUESTIONS))

    def concerns(piece: Advice) -> bool:
        return (not trainer.chosen or not piece.trainers or trainer.chosen in piece.trainers) and (
            not algorithm.chosen or algorithm.chosen in piece.algorithms
        )

    by_name = {name: [piece for piece in pieces if concerns(piece)] for name, pieces in by_question().items()}
    return {
        "filters": (trainer, algorithm),
        "question": question,
        "questions": [(name, _(words), len(by_name[name])) for name, words in QUESTIONS.items()],
        "pieces": [_shown(piece) for piece in by_name[question]],
    }


def _shown(piece: Advice) -> AdviceDetail:
    return AdviceDetail(
        id=piece.id.partition(".")[2],
        title=_(piece.title),
        when=_(piece.when),
        changes=[knob_link(change.knob, shown_text(change.to)) for change in piece.changes],
        effects=[(effect_word(key), _(text)) for key, text in piece.effect.items()],
        trainers=trainer_words(piece.trainers) if piece.trainers else "",
        algorithms=algorithm_words(piece.algorithms, list(algorithms())),
        evidence=_(piece.evidence),
        evidence_words=_(EVIDENCE[piece.evidence]),
        source=piece.source,
    )
