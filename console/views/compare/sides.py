"""The runs of the page Compare: who they are, their colors and short names, and the addresses that change the view."""

from dataclasses import dataclass

from django.http import Http404, HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from console.views.compare.address import ComparisonQuery
from console.views.run.config import show
from jobs.accounts.access import projects_of
from jobs.comparison.compare import MAX_RUNS, visible_runs
from jobs.comparison.groups import RunGroup, group_runs, swept_knobs
from jobs.comparison.names import line_dashes, short_names
from jobs.models import LIVE, Run, Study
from jobs.retention.trash import RunInTrash
from jobs.runs.header import RunHeader, run_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of the page. `color` is the index of a run color, `dash` 0 for a line drawn through.

    `changes` holds the queries of the same page with this run as the base, hidden or shown, and taken out.
    """

    run: Run
    header: RunHeader
    short: str
    color: int
    dash: int
    group: str
    is_base: bool
    is_hidden: bool
    changes: dict[str, str]

    @property
    def is_live(self) -> bool:
        """Whether it may still report something."""
        return self.run.state in ("queued", *LIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """All runs of the page: the base first, or by group.

    `missing` are ids that lead nowhere, `trashed` runs that were deleted and can come back; by any of `group_knobs`
    they can be grouped.
    """

    all: tuple[ComparedRun, ...]
    missing: tuple[str, ...]
    trashed: tuple[Run, ...]
    study: Study | None
    group_knobs: tuple[str, ...]
    groups: tuple[RunGroup, ...]

    @property
    def shown(self) -> tuple[ComparedRun, ...]:
        """Those that are not hidden."""
        return tuple(side for side in self.all if not side.is_hidden)

    @property
    def runs(self) -> list[Run]:
        """The rows of those that are shown."""
        return [side.run for side in self.shown]

    @property
    def base(self) -> ComparedRun | None:
        """The run that the others are held against; None if all are hidden."""
        return next((side for side in self.all if side.is_base), None)

    @property
    def is_live(self) -> bool:
        """Whether any of them may still report something."""
        return any(side.is_live for side in self.all)

    def by_id(self, run_id: str) -> ComparedRun:
        """Return the side of a run."""
        return next(side for side in self.all if side.run.pk == run_id)


def find_sides(request: HttpRequest, query: ComparisonQuery) -> Sides:
    """Return the runs of the address. Raises: Http404 if it names some and none of them is there for this person."""
    study = _study(request, query)
    ids = list(query.runs)
    if study is not None:
        own = study.runs.order_by("created_at", "pk").values_list("pk", flat=True)[:MAX_RUNS]
        ids = list(dict.fromkeys([*ids, *own]))[:MAX_RUNS]
    runs = visible_runs(user=request.user, ids=ids)
    visible = {run.pk for run in runs}
    gone = Run.objects.filter(pk__in=[i for i in ids if i not in visible], project__in=projects_of(request.user))
    trashed = list(gone.exclude(trashed_at=None).select_related("project").order_by("pk"))
    if len(trashed) == len(ids) == 1:
        raise RunInTrash(trashed[0])
    if ids and not runs and not trashed:
        raise Http404(_("Not found, or you have no access."))
    named = visible | {run.pk for run in trashed}
    missing = tuple(run_id for run_id in ids if run_id not in named)
    return Sides(
        all=_sides(runs, query),
        missing=missing,
        trashed=tuple(trashed),
        study=study,
        group_knobs=swept_knobs(runs) if len(runs) > 1 else (),
        groups=group_runs(runs, knob_id=query.group) if query.group else (),
    )


def _study(request: HttpRequest, query: ComparisonQuery) -> Study | None:
    if not query.study:
        return None
    study = Study.objects.filter(pk=query.study, project__in=projects_of(request.user)).first()
    if study is None:
        raise Http404(_("Not found, or you have no access."))
    return study


def _sides(runs: list[Run], query: ComparisonQuery) -> tuple[ComparedRun, ...]:
    open_ids = [run.pk for run in runs if run.pk not in query.hidden]
    base = query.base if query.base in open_ids else next(iter(open_ids), "")
    short = short_names({run.pk: run.name for run in runs})
    dashes = line_dashes({run.pk: run.color for run in sorted(runs, key=lambda run: (run.created_at, run.pk))})
    group_of = {
        run_id: (place, group)
        for place, group in enumerate(group_runs(runs, knob_id=query.group) if query.group else ())
        for run_id in group.run_ids
    }
    in_order = sorted(runs, key=lambda run: group_of[run.pk][0] if group_of else run.pk != base)
    sides = []
    for run, header in zip(in_order, run_headers(in_order, now=timezone.now()), strict=True):
        place, group = group_of.get(run.pk, (run.color, None))
        sides.append(
            ComparedRun(
                run=run,
                header=header,
                short=short[run.pk],
                color=place % 10,
                dash=place // 10 if group else dashes[run.pk],
                group=group_label(group) if group else "",
                is_base=run.pk == base,
                is_hidden=run.pk in query.hidden,
                changes=_changes(run.pk, query),
            )
        )
    return tuple(sides)


def group_label(group: RunGroup) -> str:
    """Return the value that a group's runs share, as people write it."""
    return "—" if group.value is None else show(group.value)


def _changes(run_id: str, query: ComparisonQuery) -> dict[str, str]:
    hidden = query.hidden ^ {run_id}
    left = [other for other in query.runs if other != run_id]
    return {
        "base": query.address(base=run_id, hide=",".join(sorted(query.hidden - {run_id}))),
        "hide": query.address(hide=",".join(sorted(hidden))),
        "remove": query.address(
            runs=",".join(left),
            hide=",".join(sorted(query.hidden - {run_id})),
            base=query.base if query.base != run_id else "",
        ),
    }
