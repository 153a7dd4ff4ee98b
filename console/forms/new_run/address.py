"""What an address sets on the New run page: `/runs/new?from=r-1a2b3c4d&set=train.micro_batch_size=2`, a knob, or
`set=model.id=Qwen/Qwen2.5-7B`, a hub repository that the catalog knows.

They stand in the form as changes, as if somebody had typed them; the base stays what it is.
"""

from collections.abc import Sequence

from django.utils.translation import gettext as _

from console.forms.new_run.form import combination_of, show
from console.labels.catalog import knob_label
from jobs.catalog.knob import KnobValueInvalid, knobs
from jobs.catalog.model import find_model
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.runspec import RunSpec


def set_texts(settings: Sequence[str], base: RunSpec) -> tuple[dict[str, str], str]:
    """Return the inputs' texts for what is asked ("knob=value"), and a sentence for each that is not taken, or "".

    Knobs that name code or commands are not taken: a link that somebody sends must not put them into a form.
    """
    here = combination_of(base).knobs()
    texts: dict[str, str] = {}
    refused: list[str] = []
    for one in settings:
        knob_id, _equals, text = one.partition("=")
        if knob_id == "model.id":
            texts |= _model(text, refused)
        elif knob_id not in here:
            refused.append(_("This run has no knob %(name)s.") % {"name": repr(knob_id)})
        elif knobs()[knob_id].is_privileged:
            refused.append(_("%(label)s cannot be set by the address. Type it.") % {"label": knob_label(knob_id)})
        else:
            try:
                texts[f"knobs.{knob_id}"] = show(here[knob_id].check(text))
            except KnobValueInvalid as error:
                refused.append(in_words(sentence_of(error), _))
    return texts, " ".join(refused)


def _model(name: str, refused: list[str]) -> dict[str, str]:
    """Return the inputs of a hub repository; one that is not known is not taken: a link must not name a stranger's."""
    try:
        model = find_model(name)
    except LookupError as unknown:
        refused.append(str(unknown))
        return {}
    if name.lower() not in (hub.lower() for hub in model.hub):
        refused.append(_("%(name)s is not the repository of a known model. Type it.") % {"name": repr(name[:80])})
        return {}
    return {"model.kind": "hub", "model.id.hub": name}
