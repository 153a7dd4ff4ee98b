"""What the planner uses in a project, as the settings page shows it: prices, constants and their evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.labels.calibration import kind_label, miss
from jobs.catalog.accelerator import accelerators
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import Problem
from jobs.models import Project
from jobs.planner.constant import Constant, shipped_constants
from jobs.planning.settings import constants_of, measured_on, outdated
from profiling.counted import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """The price of an hour of one device, and the day on which it was set."""

    id: str
    label: str
    price: str
    on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRow:
    """A constant: `value` as it stands in its input, `shipped` what it is without the project's own; `measured`: what
    was taken from finished runs, by kind of device."""

    constant: Constant
    value: str
    shipped: str
    label: str
    unit: str
    reason: str
    source: str
    measured: tuple[str, ...]
    allowed: str
    problem: str

    @property
    def is_own(self) -> bool:
        """True if the project has its own value."""
        return self.constant.is_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantGroup:
    """Constants of one part of the planner; `is_open`: something of them is changed or refused."""

    id: str
    title: str
    rows: tuple[ConstantRow, ...]

    @property
    def num_own(self) -> int:
        """How many have the project's own value."""
        return sum(row.is_own for row in self.rows)

    @property
    def is_open(self) -> bool:
        """True if something in it was refused."""
        return any(row.problem for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """All that a project tells the planner. `problems`: sentences by field; `gone`: own values that no longer hold."""

    currency: str
    prices: tuple[PriceRow, ...]
    accelerators: tuple[tuple[str, str], ...]
    groups: tuple[ConstantGroup, ...]
    gone: tuple[tuple[str, str], ...]
    currency_problem: str
    price_problem: str

    @property
    def num_own(self) -> int:
        """How many constants have the project's own value."""
        return sum(group.num_own for group in self.groups)


def planner_settings(
    project: Project, *, refused: Sequence[Problem] = (), posted: Mapping[str, str] | None = None
) -> PlannerSettings:
    """Return what the page shows; after a refusal with what was typed and why it is not taken."""
    problems = {problem.field: in_words(problem.message, _) for problem in refused}
    by_id = accelerators()
    prices = [
        PriceRow(
            id=name,
            label=by_id[name].label if name in by_id else name,
            price=f"{entry['price']:,.2f}",
            on=str(entry["on"]),
        )
        for name, entry in sorted(project.prices.items())
    ]
    own = constants_of(project)
    measured = _measured(project)
    rows = [_row(constant, problems, posted or {}, measured.get(constant.name, ())) for constant in own.all()]
    titles = _titles()
    groups = {row.constant.name.partition(".")[0] for row in rows}
    return PlannerSettings(
        currency=project.currency,
        prices=tuple(prices),
        accelerators=tuple((each.id, each.label) for each in sorted(by_id.values(), key=lambda each: each.label)),
        groups=tuple(
            ConstantGroup(
                id=group,
                title=titles.get(group, group.capitalize()),
                rows=tuple(row for row in rows if row.constant.name.startswith(f"{group}.")),
            )
            for group in sorted(groups, key=lambda group: (list(titles).index(group) if group in titles else 99, group))
        ),
        gone=tuple((name, in_words(why, _)) for name, why in outdated(project.plan_constants).items()),
        currency_problem=problems.get("currency", ""),
        price_problem=next((text for field, text in problems.items() if field.startswith("prices.")), ""),
    )


def constants_posted(posted: Mapping[str, str], project: Project) -> dict[str, str | None]:
    """Return the constants that a form changes: those whose text is another one than the page showed.

    `reset` names one that is taken back to what is shipped, or is "all".
    """
    if "reset" in posted:
        reset = posted["reset"]
        return dict.fromkeys(project.plan_constants if reset == "all" else [reset])
    shown = {constant.name: _text(constant.value) for constant in constants_of(project).all()}
    return {name: text for name, text in posted.items() if name in shown and text.strip() != shown[name]}


def _measured(project: Project) -> dict[str, tuple[str, ...]]:
    """Return what was taken from runs of each constant, a sentence by kind of device."""
    by_name: dict[str, tuple[str, ...]] = {}
    text = _("%(value)s on %(kind)s, measured on %(runs)s runs; error %(before)s before, %(after)s after")
    for accelerator in sorted(project.calibrations):
        for name, entry in measured_on(project, accelerator).items():
            words = {"value": _text(entry["value"]), "kind": kind_label(accelerator), "runs": entry["num_runs"]}
            sentence = counted(text % {**words, "before": miss(entry["before"]), "after": miss(entry["after"])})
            by_name[name] = (*by_name.get(name, ()), sentence)
    return by_name


def _row(
    constant: Constant, problems: Mapping[str, str], posted: Mapping[str, str], measured: tuple[str, ...]
) -> ConstantRow:
    problem = problems.get(f"constants.{constant.name}", "")
    return ConstantRow(
        constant=constant,
        value=posted.get(constant.name, "") if problem else _text(constant.value),
        shipped=_text(shipped_constants().get(constant.name).value),
        label=_(constant.label),
        unit=_(constant.unit) if constant.unit else "",
        reason=_(constant.reason),
        source=in_words(constant.source, _),
        measured=measured,
        allowed=_("%(low)s to %(high)s") % {"low": _text(constant.low), "high": _text(constant.high)},
        problem=problem,
    )


def _text(value: float) -> str:
    return f"{value:.6g}"


def _titles() -> dict[str, str]:
    """Return what people call the parts of the planner, in the order of the page."""
    return {
        "memory": _("Training memory"),
        "engine": _("Engine memory"),
        "decode": _("Generation"),
        "speed": _("Training speed"),
        "network": _("Network"),
        "estimate": _("Whole runs"),
    }
