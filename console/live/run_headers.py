"""Headers of runs for websockets."""

from dataclasses import asdict, dataclass

import orjson
from django.conf import settings
from django.utils import translation

from console.live.shared_reads import SharedReads, one_per_loop
from jobs.models import Run
from jobs.runs.header import run_header

MAX_AGE_SECONDS = 2.0  # silence changes a header too: lost contact, elapsed time


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderMessage:
    """A `run` message as JSON text, and the project that may see it."""

    project: str
    text: str


def _read(key: tuple[str, str]) -> HeaderMessage | None:
    """Return a run's header in a language, None if there is no such run."""
    run_id, language = key
    run = Run.objects.select_related("project", "created_by").filter(pk=run_id, trashed_at=None).first()
    if run is None:
        return None
    with translation.override(language):
        text = orjson.dumps({"type": "run", "run": asdict(run_header(run))}).decode()
    return HeaderMessage(project=run.project.slug, text=text)


headers = one_per_loop(lambda: SharedReads(_read, max_age=MAX_AGE_SECONDS))
"""The headers of the running event loop, by run and language."""


def forget_header(run_id: str) -> None:
    """The run changed: read its header anew when it is asked for next, in each language."""
    for language, _name in settings.LANGUAGES:
        headers().forget((run_id, language))
