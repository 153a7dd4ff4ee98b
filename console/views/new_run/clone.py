"""What a clone starts from: the run's spec, with knobs as they were changed while it trained, or as it was launched."""

from django.utils.translation import gettext as _

from jobs.catalog.rules.rule import changed
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import value_text
from jobs.models import Run
from jobs.runs.live_changes import live_settings
from jobs.telemetry.attempt_spec import latest_spec_json


def cloned_spec(origin: Run, *, uses_launch: bool) -> tuple[RunSpec, str]:
    """Return the spec, and which values it has where knobs were changed while the run trained; "" where none were.

    Raises: SpecInvalid if the spec is from another version.
    """
    now = parse_spec(latest_spec_json(origin))
    changes = live_settings(origin).changes
    at_launch = {change.knob: change.old for change in reversed(changes)}
    labels = {change.knob: change.label for change in changes}
    differing = {k: old for k, old in at_launch.items() if k in now.knobs and now.knob(k) != old}
    if not differing:
        return now, ""
    text = _("%(label)s %(now)s (%(launch)s at launch)")
    values = ", ".join(
        text % {"label": labels[k], "now": value_text(now.knob(k)), "launch": value_text(old)}
        for k, old in differing.items()
    )
    if uses_launch:
        text = _("The form has the values of the launch, not those changed while it trained: %(values)s.")
        return changed(now, differing), text % {"values": values}
    text = _("The form has the values that were changed while it trained: %(values)s.")
    return now, text % {"values": values}
