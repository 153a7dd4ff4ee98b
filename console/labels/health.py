"""What marks of a run's health are called."""

from django.utils.translation import gettext as _

from console.labels.catalog import metric_label
from jobs.catalog.rules.symptom import symptoms


def finding_title(finding: str, *, band_prefix: str) -> str:
    """Return the words for what a mark found: the symptom's title, or that a metric has left its band."""
    if finding.startswith(band_prefix):
        return _("%(metric)s is outside of its band") % {"metric": metric_label(finding.removeprefix(band_prefix))}
    symptom = symptoms().get(finding)
    return _(symptom.title) if symptom else finding
