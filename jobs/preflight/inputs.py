"""What a spec names that a trial may read: its upload, paths below the operator's roots, folders of the hub's cache.

Nothing of the console's data directory is ever read for a spec but the upload that it names, and what runs of its own
project wrote.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.ray_api import is_local
from jobs.models import Project, Run
from jobs.preflight.client import PathNotAllowed
from jobs.preflight.sandbox import HOUSE, Allowance

_BUNDLED = HOUSE / "jobs" / "engine" / "bundled"


def uploads_dir() -> Path:
    """Return where uploaded files stand, each under its SHA-256."""
    return Path(settings.FILES_DIR) / "uploads"


def allowance_for(op: str, spec: RunSpec, *, project: Project | None) -> Allowance:
    """Return what the trial's operation may have for this spec: data for `preview` and `reward`, models for the rest.

    What is on the hub is fetched by operations that run nobody's code; others find it in the cache.
    Raises: PathNotAllowed beside the field whose path is not read here.
    """
    holds_code = op in ("reward", "algorithm")
    places: list[Path] = []
    real: dict[Path, Path] = {}
    repositories: list[str] = []
    for field, kind, place in _named(op, spec):
        if kind == "upload":
            places.append(uploads_dir() / place.removeprefix("upload:"))
        elif kind == "path":
            real |= _below_roots(place, field, project, is_file=field.startswith("data."))
        elif kind in ("models", "datasets"):
            repositories.append(f"{kind}--{place.replace('/', '--')}")
    cache = hub_cache()
    if repositories and not holds_code:
        cache.mkdir(parents=True, exist_ok=True)
        token = cache.parent / "token"  # of whoever signed in to the hub by its own command
        return Allowance(read=(*places, *real, token), real=real, write=(cache,), has_network=True, holds_code=False)
    cached = (cache / name for name in repositories)
    return Allowance(read=(*places, *real, *cached), real=real, holds_code=holds_code)


def is_streamed_from_hub(spec: RunSpec) -> bool:
    """Return whether rows come from the hub as they are needed, without being kept."""
    streaming = spec.knobs.get("data.streaming")
    return spec.data.kind == "hub" and streaming is not None and bool(streaming.value)


def hub_cache() -> Path:
    """Return where the hub's client keeps what it fetched."""
    home = os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub"))


def _named(op: str, spec: RunSpec) -> Iterator[tuple[str, str, str]]:
    """Yield field, kind (upload, path, models, datasets) and place of all that the operation reads."""
    if op in ("preview", "reward"):
        data = spec.data
        kind = {"hub": "datasets"}.get(data.kind, data.kind)
        yield "data.id", kind, data.id
        if data.eval_split and kind == "path":  # another file, in the same folder where it is no whole path
            yield "data.eval_split", kind, str(Path(data.id).parent / data.eval_split)
    if op in ("preview", "model", "config"):
        yield "model.id", {"hub": "models"}.get(spec.model.kind, spec.model.kind), spec.model.id
    if op == "model":
        if spec.needs("teacher"):
            place = str(spec.knob("models.teacher_path") or "").strip()
            yield "knobs.models.teacher_path", _kind_of(place), place
        if spec.needs("reward"):
            place = spec.reward_model.strip()
            yield "reward.location", _kind_of(place), place


def _kind_of(place: str) -> str:
    """Return what a text that names a model means, as the trainer reads it (jobs/engine/data/model_files.py)."""
    if place.startswith(("/", "~", ".")):
        return "path"
    return "bundled" if "/" not in place and (_BUNDLED / place / "config.json").is_file() else "models"


def _below_roots(place: str, field: str, project: Project | None, *, is_file: bool) -> dict[Path, Path]:
    """Return the path and what links in its folder lead to, as far as they may be read, each with where it really is.

    Of what is a file (`is_file`: data, which code of a person reads, too) a folder is nothing: it may hold what must
    not be read. Raises: PathNotAllowed.
    """
    try:
        path = HOUSE / Path(place).expanduser()
        real = path.resolve()
        is_there = real.exists()
    except (OSError, ValueError, RuntimeError):
        raise PathNotAllowed(field, _("%(place)r is no path.") % {"place": place}) from None
    if not _may_read(real, project):
        if not is_there and is_local():
            return {}  # the trial says that it is not there
        raise PathNotAllowed(field, _why_not(place, field))
    if is_file and real.is_dir():
        return {}
    linked = [entry.resolve() for entry in _entries(real) if entry.is_symlink()]
    return {path: real, **{target: target for target in linked if _may_read(target, project)}}


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir()) if folder.is_dir() else []
    except OSError:
        return []


def _may_read(real: Path, project: Project | None) -> bool:
    data_dir: Path = settings.DATA_DIR
    if data_dir.is_relative_to(real):
        return False
    if real.is_relative_to(data_dir):
        return _is_of_a_run(real, project)
    return any(
        real.is_relative_to(root) and not any(part.startswith(".") for part in real.relative_to(root).parts)
        for root in settings.DATA_ROOTS
    )


def _is_of_a_run(real: Path, project: Project | None) -> bool:
    """Return whether a path is in the folder of a run of the project, as its checkpoints and models are."""
    runs = Path(settings.RUN_ROOT).resolve()
    if project is None or not real.is_relative_to(runs) or real == runs:
        return False
    return Run.objects.filter(project=project, pk=real.relative_to(runs).parts[0]).exists()


def _why_not(place: str, field: str) -> str:
    values = {"field": field, "place": place, "roots": ", ".join(map(str, settings.DATA_ROOTS))}
    if not values["roots"]:
        text = _(
            "%(field)s: the console does not read %(place)r. It reads no path here: PITWALL_DATA_ROOTS names none."
        )
        return text % values
    text = _(
        "%(field)s: the console does not read %(place)r. It reads what is below %(roots)s (PITWALL_DATA_ROOTS), "
        "without hidden folders, its own data and links that lead elsewhere."
    )
    return text % values
