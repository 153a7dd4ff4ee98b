"""What a run that died of memory is told in words: where, what was too large, and what would have fitted."""

from collections.abc import Iterator

from django.utils.translation import gettext as _

from console.labels.catalog import knob_label, phase_label
from console.labels.memory_terms import TERM_WORDS
from console.labels.numbers import size
from jobs.catalog.value import Value, value_text
from jobs.planner.result import POOL_WORDS
from jobs.planning.post_mortem import PostMortem


def post_mortem_sentences(report: PostMortem) -> list[str]:
    """Return the sentences, the most telling first."""
    return [sentence[:1].upper() + sentence[1:] for sentence in _sentences(report)]


def change_sentence(report: PostMortem) -> str:
    """Return the smallest change that fits, "" where no knob does it."""
    if report.remedy is None:
        return ""
    parts = (
        _("%(label)s %(after)s instead of %(before)s")
        % {"label": knob_label(knob), "after": _value(after), "before": _value(report.spec.knob(knob))}
        for knob, after in report.remedy.changes.items()
    )
    return ", ".join(parts)


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return _("on") if value else _("off")
    return value_text(value)


def term_word(report: PostMortem) -> str:
    """Return what people call the term that was too large."""
    return _("host memory") if report.term == "host" else str(TERM_WORDS[report.term])


def _sentences(report: PostMortem) -> Iterator[str]:
    words = {
        "role": _(POOL_WORDS[report.role]) if report.role in POOL_WORDS else report.role,
        "rank": report.failure.rank,
        "phase": phase_label(report.phase) if report.phase else "",
        "term": term_word(report),
        "planned": size(report.planned),
        "part": size(report.term_planned),
        "measured": size(report.term_measured or 0),
        "wanted": size(report.failure.wanted or 0),
        "demanded": size(report.demanded or 0),
        "held": size((report.demanded or 0) - (report.failure.wanted or 0)),
        "limit": size(report.limit or 0),
    }
    if report.failure.is_cache:  # nothing was allocated: the share of the device had no room left
        yield _("%(role)s rank %(rank)s found no room for its KV cache; the plan has %(part)s for it.") % words
        if report.remedy is None:
            yield _no_remedy()
        return
    if report.term == "host":
        yield _("The node ran out of its own memory; the plan needs %(planned)s of it.") % words
    elif report.is_phase_told:
        yield _("%(role)s rank %(rank)s ran out of memory in %(phase)s; the plan needs %(planned)s there.") % words
    else:
        yield _("%(role)s rank %(rank)s ran out of memory; the plan needs most in %(phase)s, %(planned)s.") % words
    if report.demanded and report.failure.memory == "host":
        yield _("Its process had held up to %(held)s for the run when it asked for %(wanted)s more.") % words
    elif report.demanded and report.limit:
        yield _("With the last %(wanted)s it would have taken %(demanded)s of %(limit)s.") % words
    elif report.limit:
        yield _("There were %(limit)s.") % words
    if report.term != "host":
        yield {
            "measured": _("Too large: %(term)s, measured %(measured)s, planned %(part)s."),
            "allocation": _("Too large: %(term)s, planned %(part)s; the last allocation is one of its tensors."),
            "rest": _("Above the plan: %(term)s, planned %(part)s; what else was measured is as planned."),
            "plan": _("The largest part in the plan: %(term)s, %(part)s."),
        }[report.known_by] % words
    if report.remedy is None:
        yield _no_remedy()


def _no_remedy() -> str:
    return _("No change of knobs that the planner knows would have fitted: take devices with more memory, or more.")
