"""The imported files of a trace, for whoever reads them: which there are, and opening them as recordings."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.utils.translation import gettext as _

from jobs.models import Layer, Trace
from jobs.traces.imports import store_path
from profiling.analysis.parts import whole_processes
from profiling.evidence import RecordedTrace
from profiling.trace.store import NotAStore, Store, is_of_store, is_whole


class NoAnswer(Exception):
    """Nothing can be said of a trace; the sentence says why. `status` is what HTTP calls that.

    `trace_id` is the trace whose files are the cause, "" where none is.
    """

    status = 409
    trace_id = ""


@dataclass(frozen=True, slots=True)
class File:
    """A store, the trace, file and worker that it is of ("" and -1 where that is not known), and when it was made."""

    path: Path
    trace_id: str
    name: str
    role: str
    rank: int
    made: str


def ready_layers(trace: Trace) -> Sequence[Layer]:
    """Return the files of a trace that were imported, in the order they came."""
    return list(trace.layers.select_related("trace").filter(state="ready").order_by("pk"))


def files_of(trace: Trace) -> tuple[File, ...]:
    """Return the stores of a trace, in the order their files came."""
    return tuple(
        File(
            path=store_path(layer),
            trace_id=trace.pk,
            name=layer.file_name,
            role=layer.role,
            rank=-1 if layer.rank is None else layer.rank,
            made=str(layer.ended_at),
        )
        for layer in ready_layers(trace)
    )


def damaged(file_name: str) -> str:
    """Return what to say of a file whose store cannot be read."""
    message = _("What was imported of %(file)s cannot be read. Try again; if it still fails, import the file again.")
    return message % {"file": file_name}


@contextmanager
def recordings(files: Sequence[File]) -> Iterator[list[RecordedTrace]]:
    """Lend the files as recordings, parts of one process as one; what was deleted meanwhile is left out.

    Raises: NoAnswer for one that is there and damaged, whether that is seen when it is opened or while it is read.
    """
    with ExitStack() as stack:
        recorded = []
        for file in files:
            try:
                store = stack.enter_context(Store(file.path))
            except (NotAStore, OSError) as error:
                if not file.path.exists():
                    continue
                raise _no_answer(file) from error
            recorded.append(RecordedTrace(store=store, role=file.role, rank=file.rank))
        try:
            if files:
                recorded = stack.enter_context(whole_processes(recorded, folder=files[0].path.parent))
            yield recorded
        except Exception as error:
            if not is_of_store(error):
                raise
            bad = next((file for file in files if file.path.exists() and not is_whole(file.path)), None)
            if bad is None:  # it is a file of the other side of a comparison
                raise
            raise _no_answer(bad) from error


def _no_answer(file: File) -> NoAnswer:
    problem = NoAnswer(damaged(file.name))
    problem.trace_id = file.trace_id
    return problem
