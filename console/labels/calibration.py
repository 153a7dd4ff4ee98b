"""What a calibration says in words: the kind of device, and how far runs are missed."""

from django.utils.translation import gettext as _

from jobs.catalog.accelerator import accelerators
from jobs.catalog.sentence import in_words
from jobs.planner.calibration import miss_text


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
