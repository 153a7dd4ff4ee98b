"""What marks of a run's health are called."""

from collections.abc import Sequence

from django.utils.translation import gettext as _

from console.labels.catalog import metric_label
from jobs.catalog.rules.symptom import symptoms
from jobs.diagnosis.health import BAND
from jobs.models import HealthMark


def finding_title(finding: str, *, band_prefix: str) -> str:
    """Return the words for what a mark found: the symptom's title, or that a metric has left its band."""
    if finding.startswith(band_prefix):
        return _("%(metric)s is outside of its band") % {"metric": metric_label(finding.removeprefix(band_prefix))}
    symptom = symptoms().get(finding)
    return _(symptom.title) if symptom else finding


def alarms_text(marks: Sequence[HealthMark]) -> str:
    """Return the first of a run's alarms with the step from which it holds, and how many there are besides; "" for
    none."""
    if not marks:
        return ""
    others = len(marks) - 1
    words = {"title": finding_title(marks[0].finding, band_prefix=BAND), "step": f"{marks[0].begin_step:,}"}
    if not others:
        return _("%(title)s, since step %(step)s") % words
    return _("%(title)s, since step %(step)s, and %(n)s more") % {**words, "n": others}
