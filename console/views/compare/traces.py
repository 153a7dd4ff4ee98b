"""The tab Traces of the page Compare in words: each capture's steps, workers, state and files."""

from dataclasses import dataclass
from itertools import count, groupby

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.views.compare.sides import ComparedRun, Sides
from jobs.captures.artifacts import opens_in_perfetto
from jobs.comparison.traces import CaptureTrace, TraceRow, traces_side_by_side
from jobs.models import Artifact, Capture

BADGES = {
    "armed": ("queued", "clock"),
    "recording": ("running", "player-play"),
    "stopping": ("stopping", "square"),
    "writing": ("importing", "circle-half-2"),
    "importing": ("importing", "circle-half-2"),
    "ready": ("ready", "check"),
    "failed": ("failed", "x"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    """One file: `where` is its role and rank, `progress` how much of it is here, "" once it can be fetched.

    An address is "" where there is nothing to open or fetch yet.
    """

    row: Artifact
    name: str
    where: str
    progress: str
    perfetto_url: str
    download_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One capture: `look` and `icon` are those of its state's badge, `who` the roles and ranks asked for.

    `timeline_url` shows it, `summary_url` says where its time goes, `difference_url` what it does differently from the
    base's of the same steps; "" until the files were imported.
    """

    capture: Capture
    title: str
    who: str
    word: str
    look: str
    icon: str
    is_dead: bool
    num_bytes: int
    files: tuple[FileLine, ...]
    zip_url: str
    profile_url: str
    timeline_url: str
    summary_url: str
    difference_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLines:
    """Captures that belong together; `columns` are a run, where its captures are, and those of this row."""

    tool: str
    title: str
    num_runs: int
    columns: list[tuple[ComparedRun, str, list[TraceLine]]]


def trace_rows(sides: Sides) -> dict[str, object]:
    """Return what the tab shows: rows of captures that belong together, a column a run."""
    traces = traces_side_by_side(run_ids=[side.run.pk for side in sides.shown])
    return {
        "trace_rows": [_row(row, sides) for row in traces.rows],
        "num_left_out": traces.num_left_out,
        "columns": [(side, profile_url(side)) for side in sides.shown],
    }


def _row(row: TraceRow, sides: Sides) -> TraceLines:
    base = next((row.opened_of(place) for place, side in enumerate(sides.shown) if side.is_base), "")
    columns = [
        (side, profile_url(side), [_line(trace, side, base) for trace in traces])
        for side, traces in zip(sides.shown, row.captures, strict=True)
    ]
    title = steps_title(row.steps, 0) if row.steps else _("Steps not known yet")
    return TraceLines(tool=row.tool, title=title, num_runs=row.num_runs, columns=columns)


def profile_url(side: ComparedRun, capture: str = "") -> str:
    """Return where the run's captures are, and others are asked for."""
    return reverse("run", args=[side.run.pk, "profile"]) + (f"?capture={capture}" if capture else "")


def _line(trace: CaptureTrace, side: ComparedRun, base: str) -> TraceLine:
    row = trace.capture
    files = sorted(row.files.all(), key=lambda file: file.name)
    look, icon = BADGES.get(row.state, ("missing", "help-circle"))
    return TraceLine(
        capture=row,
        title=steps_title(trace.steps, row.num_steps),
        who=workers_text(row.roles, row.ranks),
        word=state_label(row.state),
        look=look,
        icon=icon,
        is_dead=trace.is_dead,
        num_bytes=sum(file.size for file in files),
        files=tuple(_file(row, file) for file in files),
        zip_url=reverse("capture-zip", args=[side.run.pk, row.pk]) if row.state == "ready" else "",
        profile_url=profile_url(side, row.pk),
        timeline_url=reverse("trace", args=[trace.opened]) if trace.opened else "",
        summary_url=reverse("trace-summary", args=[trace.opened]) if trace.opened else "",
        difference_url=_difference_url(base, trace.opened) if not side.is_base else "",
    )


def _difference_url(base: str, other: str) -> str:
    """Return where the trace is held against the base's of the same steps; "" until both were imported."""
    return f"{reverse('trace-difference', args=[base])}?other={other}" if base and other else ""


def _file(capture: Capture, row: Artifact) -> FileLine:
    role, rank = str(row.meta.get("role", "")), row.meta.get("rank")
    where = [_role_name(role), str(rank) if isinstance(rank, int) else ""]
    is_trace = row.is_ready and opens_in_perfetto(row.name)
    perfetto = reverse("perfetto", args=[capture.run_id, capture.pk])
    return FileLine(
        row=row,
        name=row.name.rpartition("/")[2].replace(f"{capture.pk}-", "", 1),
        where=" ".join(part for part in where if part),
        progress="" if row.is_ready else _progress(capture, row),
        perfetto_url=f"{perfetto}?file={row.pk}" if is_trace else "",
        download_url=reverse("run-file", args=[capture.run_id, row.pk]) if row.is_ready else "",
    )


def _progress(capture: Capture, row: Artifact) -> str:
    if not row.received or capture.state == "failed":
        return _("on the cluster")
    return _("copying %(share)s %%") % {"share": 100 * row.received // max(row.size, 1)}


def steps_title(steps: tuple[int, int] | None, num_steps: int) -> str:
    """Return what a capture is of: "Steps 308–309", "Step 100", "Next 2 steps"."""
    if steps is None:
        if num_steps == 1:
            return _("Next step")
        return _("Next %(count)s steps") % {"count": num_steps}
    if steps[0] == steps[1]:
        return _("Step %(step)s") % {"step": steps[0]}
    return _("Steps %(first)s–%(last)s") % {"first": steps[0], "last": steps[1]}


def workers_text(roles: list[str], ranks: list[int]) -> str:
    """Return whom a capture records: "policy, vLLM, ranks 0–1", "all workers"."""
    names = ", ".join(_role_name(role) for role in roles)
    if not ranks:
        return names or _("all workers")
    some = ngettext("rank %(ranks)s", "ranks %(ranks)s", len(ranks)) % {"ranks": _ranges(ranks)}
    return f"{names}, {some}" if names else _("all roles, %(ranks)s") % {"ranks": some}


def state_label(state: str) -> str:
    """Return the label of a capture's state."""
    words = {
        "armed": _("armed"),
        "recording": _("recording"),
        "stopping": _("stopping"),
        "writing": _("writing"),
        "importing": _("importing"),
        "ready": _("ready"),
        "failed": _("failed"),
    }
    return words.get(state, state)


def _role_name(role: str) -> str:
    return "vLLM" if role == "vllm" else role


def _ranges(ranks: list[int]) -> str:
    places = count()
    runs = [list(own) for _key, own in groupby(sorted(set(ranks)), key=lambda rank: rank - next(places))]
    return ", ".join(str(own[0]) if len(own) == 1 else f"{own[0]}–{own[-1]}" for own in runs)
