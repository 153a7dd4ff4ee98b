"""What a calibration says in words: the kind of device, and how far runs are missed."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.catalog.accelerator import accelerators
from jobs.catalog.sentence import in_words
from jobs.planner.calibration import miss_text
from jobs.planning.joining import Joining


def kind_label(accelerator: str) -> str:
    """Return what people call the kind of device that was calibrated."""
    labelled = accelerators()
    return (
        _("the CPU")
        if accelerator == "cpu"
        else labelled[accelerator].label
        if accelerator in labelled
        else accelerator
    )


def miss(error: float | None) -> str:
    """Return how far runs are missed, in words; a dash where that is not known."""
    return "—" if error is None else in_words(miss_text(error), _)


def joining_text(joining: Joining) -> str:
    """Return what a finished run did to the calibration, and how far its step was from the plan before and after."""
    if joining["why_not"]:
        return _("It says nothing of the planner: %(why)s") % {"why": _(joining["why_not"])}
    words = {"kind": kind_label(joining["accelerator"]), "before": miss(joining["before"])}
    if joining["before"] is None:
        text = _(
            "Its step time on %(kind)s was not planned before; with what it measured the plan is off by %(after)s."
        )
    elif not joining["constants"]:
        text = _("Its step time on %(kind)s was off the plan by %(before)s; no value changed.")
    else:
        text = _("Its step time on %(kind)s was off the plan by %(before)s; with what it measured by %(after)s.")
    if joining["after"] is None:
        text = _("It joined the calibration of %(kind)s.")
    rests = ngettext(
        "The values rest on %(n)s setting.", "The values rest on %(n)s settings.", joining["num_settings"]
    ) % {"n": joining["num_settings"]}
    return f"{text % {**words, 'after': miss(joining['after'])}} {rests}"
