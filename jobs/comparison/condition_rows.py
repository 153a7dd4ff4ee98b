"""What runs were made on and with, as rows of the same kind as their settings. No database."""

from collections.abc import Sequence

from jobs.comparison.conditions import RunConditions, weight
from jobs.comparison.config import Setting, SettingRow, is_other

PACKAGE = "package."
TEXTS = ("data", "devices", "driver", "cpu", "node", "python", "image", "sources", "code")


def condition_rows(runs: Sequence[RunConditions], *, base: int) -> tuple[SettingRow, ...]:
    """Return data, hardware, code and packages of the runs that some of them tells, the weightiest first.

    A row is different if a run tells another value than run `base` (its place in `runs`); what one does not tell does
    not differ.
    """
    rows = [_row(name, [", ".join(getattr(run, name)) for run in runs], base) for name in TEXTS]
    packages = {name for run in runs for name in run.packages}
    for name in sorted(packages, key=weight):
        versions = [run.packages.get(name, "—") if run.packages else "" for run in runs]
        rows.append(_row(f"{PACKAGE}{name}", versions, base))
    return tuple(row for row in rows if any(row.settings))


def _row(name: str, texts: Sequence[str], base: int) -> SettingRow:
    settings = tuple(Setting(value=text, origin="") if text else None for text in texts)
    theirs = settings[base]
    is_different = any(own and theirs and is_other(own, theirs) for own in settings)
    return SettingRow(id=name, settings=settings, is_different=bool(is_different))
