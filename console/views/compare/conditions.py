"""What a comparison says of conditions that differ between runs."""

from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.comparison.condition_rows import PACKAGE
from jobs.comparison.conditions import DifferingCondition

SHOWN_PACKAGES = 3


def condition_sentence(conditions: Sequence[DifferingCondition], *, run: str, base: str) -> str:
    """Return why step times are not comparable, and which were left out; "" where nothing that is recorded differs."""
    decisive = [one for one in conditions if one.is_decisive]
    parts = [_said(one, run, base) for one in decisive if one.kind != "packages"]
    packages = [one for one in decisive if one.kind == "packages"]
    parts += [_packages(packages)] if packages else []
    sentences = [_("Step times are not comparable: %(why)s.") % {"why": "; ".join(parts)}] if parts else []
    for one in conditions:
        if not one.is_decisive:
            words = {"run": run, "base": base, "one": one.run or "—", "other": one.base or "—"}
            text = _("Left out of times, as a profiler recorded them: steps %(other)s of %(base)s, %(one)s of %(run)s.")
            sentences.append(text % words)
    return " ".join(sentences)


def condition_label(name: str) -> str:
    """Return what a row of conditions is about, "" for one of settings."""
    if name.startswith(PACKAGE):
        return _("Package")
    words = {
        "data": _("Training data"),
        "devices": _("Devices"),
        "driver": _("Driver of the devices"),
        "cpu": _("CPU model"),
        "node": _("Node"),
        "python": _("Python"),
        "image": _("Container image"),
        "sources": _("Code from Git"),
        "code": _("Code of Pitwall on the cluster"),
    }
    return words.get(name, "")


def _said(condition: DifferingCondition, run: str, base: str) -> str:
    words = {"run": run, "base": base, "one": condition.run or "—", "other": condition.base or "—"}
    match condition.kind:
        case "load":
            text = _(
                "other programs took %(one)s of the node's CPU while %(run)s trained, %(other)s while %(base)s did"
            )
        case "devices":
            text = _("other devices (%(other)s → %(one)s)")
        case "cpu":
            text = _("another CPU (%(other)s → %(one)s)")
        case "node":
            text = _("another node (%(other)s → %(one)s)")
        case "driver":
            text = _("another driver (%(other)s → %(one)s)")
        case "python":
            text = _("another Python (%(other)s → %(one)s)")
        case "image":
            text = _("another container image (%(other)s → %(one)s)")
        case "sources":
            text = _("other code (%(other)s → %(one)s)")
        case "code":
            text = _("other code of Pitwall (%(other)s → %(one)s)")
        case _:
            text = _("steps were recorded by a profiler (%(base)s: %(other)s, %(run)s: %(one)s)")
    return text % words


def _packages(packages: Sequence[DifferingCondition]) -> str:
    listed = ", ".join(f"{one.name} {one.base or '—'} → {one.run or '—'}" for one in packages[:SHOWN_PACKAGES])
    more = len(packages) - SHOWN_PACKAGES
    if more > 0:
        listed += ngettext(" and %(n)s more", " and %(n)s more", more) % {"n": more}
    return _("other packages (%(packages)s)") % {"packages": listed}
