"""Where the threads of a run stood while stacks were sampled: equal ones together, with the workers that have them."""

from dataclasses import dataclass
from itertools import islice

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.views.run.files import visible_run
from jobs.models import Artifact, Capture
from jobs.traces.imports import TIMELESS
from profiling.sampled_stacks import SampledStack, Samples, places, read
from profiling.stacks import MAIN

_MOST_FILES = 64
_MOST_BYTES = 2 << 20  # of one file; the most frequent stacks stand first in it
_MOST_TOGETHER = 8 << 20  # of all of them: in memory stacks take up to 25 times as much
_MOST_CHARS = 100  # of a name of a process or thread
_MOST_SHOWN = 40
_OPEN_FRAMES = 5
_MOST_WORKERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRow:
    """A stack as the page shows it: the newest frames first, those below `rest` folded away."""

    num_processes: int
    where: list[str]
    more: int
    frames: list[tuple[str, str]]
    rest: list[tuple[str, str]]


@require_GET
def stacks(request: HttpRequest, run_id: str, capture_id: str) -> HttpResponse:
    """Show the sampled stacks of a capture."""
    run, _role = visible_run(request, run_id)
    capture = get_object_or_404(Capture, pk=capture_id, run=run)
    files = [file for file in capture.files.order_by("name") if file.is_ready and file.name.endswith(TIMELESS)]
    samples: dict[str, Samples] = {}
    is_cut = len(files) > _MOST_FILES
    shown = files[:_MOST_FILES]
    for file in shown:
        try:
            worker_samples, is_part = _samples(file, most=min(_MOST_BYTES, _MOST_TOGETHER // len(shown)))
        except OSError:
            continue  # it is not on the console's disk any more
        samples[_worker(file)] = worker_samples
        is_cut = is_cut or is_part
    threads = places(samples)
    working = [place for place in threads if place.is_main]
    others = [place for place in threads if not place.is_main]
    first, last = capture.recorded_steps or (0, 0)
    context = {
        "run": run,
        "project": run.project,
        "capture": capture,
        "steps": "" if not first else str(first) if first == last else f"{first}–{last}",
        "num_workers": len(samples),
        "num_samples": sum(max(_of_threads(worker_samples).values(), default=0) for worker_samples in samples.values()),
        "groups": [
            (_("Threads that do the work"), _rows(working), max(len(working) - _MOST_SHOWN, 0)),
            (_("Other threads"), _rows(others), max(len(others) - _MOST_SHOWN, 0)),
        ],
        "is_cut": is_cut,
    }
    return render(request, "run/stacks.html", context)


def _samples(file: Artifact, *, most: int) -> tuple[Samples, bool]:
    """Return the samples in the first bytes of a file, and whether there are more of them. Raises: OSError."""
    with file.stored_path.open("rb") as opened:
        data = opened.read(most + 1)
    is_part = len(data) > most
    lines = data[:most].decode(errors="replace").split("\n")
    return read(lines[:-1] if is_part else lines), is_part


def _worker(file: Artifact) -> str:
    """Return of which worker a file is, by its name where nobody said it."""
    meta = file.meta if isinstance(file.meta, dict) else {}
    role, rank = meta.get("role"), meta.get("rank")
    if role and isinstance(rank, int):
        part = meta.get("part")
        return f"{role} {rank}" + (f" {part}" if part else "")
    return file.name.rpartition("/")[2].removesuffix(".stacks.txt")


def _of_threads(samples: Samples) -> dict[str, int]:
    num_samples: dict[str, int] = {}
    for (thread, _stack), count in samples.items():
        num_samples[thread] = num_samples.get(thread, 0) + count
    return num_samples


def _rows(sampled: list[SampledStack]) -> list[StackRow]:
    rows = []
    for place in islice(sampled, _MOST_SHOWN):
        where = [
            f"{one.process[:_MOST_CHARS]}{'' if one.thread == MAIN else f' {one.thread[:_MOST_CHARS]}'} "
            f"{_percent(one.share)}"
            for one in place.standing
        ]
        frames = [_frame(call) for call in reversed(place.stack)]
        rows.append(
            StackRow(
                num_processes=place.processes,
                where=where[:_MOST_WORKERS],
                more=max(len(where) - _MOST_WORKERS, 0),
                frames=frames[:_OPEN_FRAMES],
                rest=frames[_OPEN_FRAMES:],
            )
        )
    return rows


def _frame(call: str) -> tuple[str, str]:
    """Return function and place of a call: `f (file:line)`."""
    name, _, place = call.partition(" (")
    return name[:300], place.removesuffix(")")[:300]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "< 1 %"


urlpatterns: list[URLPattern] = [
    path("runs/<slug:run_id>/captures/<slug:capture_id>/stacks", stacks, name="run-stacks"),
]
