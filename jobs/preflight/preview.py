"""What a spec's data, model and reward look like before the run: typed answers of the trial process, kept for a while.

Answers are kept in the cache under everything they depend on, so that launching what was just previewed costs nothing.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

from django.core.cache import cache
from django.utils.translation import gettext as _

from jobs.accounts.access import User
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import ModelSource, RunSpec, to_json
from jobs.models import Project, Upload
from jobs.preflight.client import TrialFailed, TrialUnavailable, run_trial
from jobs.preflight.inputs import allowance_for, is_streamed_from_hub, uploads_dir
from jobs.preflight.sandbox import Allowance
from jobs.preflight.trial_switch import require_trial

PREVIEW_SAMPLES = 5
REWARD_SAMPLES = 8
PREVIEW_SECONDS = 30.0
MODEL_SECONDS = 30.0
CONFIG_SECONDS = 15.0
ALGORITHM_SECONDS = 60.0  # most of it imports torch
REWARD_SECONDS = 30.0  # the trial itself gives up on one completion after 8 s and then knows the line
KEPT_SECONDS = 600
MAX_KEPT_CHARS = 1 << 20  # of an answer: the cache counts entries, not what they take
REFUSAL_KEPT_SECONDS = 30  # so that a form that asks at every key does not wait for the same answer again

_NO_ANSWER = (KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""What comes of an answer that code which is tried has written itself."""
_PREVIEW_GROUPS = ("rollout", "train", "eval", "data")  # of knobs that change which rows are read or cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a rendered sample; `is_trained` is its loss mask."""

    text: str
    is_trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSample:
    """One row as the trainer will see it; of a pair the chosen response, and the rejected one beside it. `label` is
    desirable or undesirable where labels are learned, else "".
    """

    segments: tuple[Segment, ...]
    num_tokens: int
    prompt: str
    answer: str
    rejected: tuple[Segment, ...] = ()
    num_rejected_tokens: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPreview:
    """The data of a spec. `edges` (tokens, one more than `counts`) and `counts` (rows) are the histogram of lengths.

    `num_too_long` and `num_left_out` rows to train on are longer than the limit, and left out of the run for it; exact
    where all of them were measured, else the share of those that were (`num_measured`). `recognized` has the columns
    that nobody chose, by dotted field: the built-in trainer reads these. All numbers are of the first rows alone where
    `is_beginning`, of data that are read as needed.
    """

    columns: tuple[str, ...]
    num_rows: int
    num_train: int
    num_eval: int
    samples: tuple[RenderedSample, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    num_too_long: int
    share_truncated: float
    mapping_problem: str
    mapping_field: str
    num_left_out: int = 0
    num_measured: int = 0
    is_beginning: bool = False
    recognized: Mapping[str, str] = dataclass_field(default_factory=dict)

    @property
    def is_sampled(self) -> bool:
        """True if only some of the rows were measured."""
        return 0 < self.num_measured < self.num_train


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the model's own configuration says; 0 where it does not say."""

    architecture: str
    num_parameters: int
    context_tokens: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """One completion and what the reward gave it."""

    prompt: str
    completion: str
    answer: str
    reward: float
    seconds: float


def preview_data(spec: RunSpec, *, project: Project) -> DataPreview:
    """Return samples, lengths and counts of the spec's data.

    Raises: TrialFailed beside the data field that is wrong; also if an upload is not this project's.
    """
    _require_upload(spec, project)
    op = {"op": "preview", "spec": to_json(spec), "inputs_dir": str(uploads_dir()), "samples": PREVIEW_SAMPLES}
    allowance = allowance_for("preview", spec, project=project)
    return _data_preview(_cached_answer("preview", _data_depends_on(spec), op, PREVIEW_SECONDS, allowance))


def known_data(spec: RunSpec, *, project: Project) -> DataPreview | None:
    """Return the preview of the spec's data if it was made a while ago, None if not: nothing is read for it."""
    try:
        _require_upload(spec, project)
        allowance_for("preview", spec, project=project)
    except TrialFailed:
        return None
    answer = cache.get(_key("preview", _data_depends_on(spec)))
    return None if answer is None else _data_preview(answer)


def _data_depends_on(spec: RunSpec) -> list[Any]:
    raw = to_json(spec)
    knobs = {k: v["value"] for k, v in raw["knobs"].items() if k.partition(".")[0] in _PREVIEW_GROUPS}
    return [raw["algorithm"], raw["model"], raw["data"], knobs, _stamps(spec.data.id, spec.model.id)]


def read_config(model: ModelSource, *, project: Project | None) -> Mapping[str, Any]:
    """Return the config.json of a model in a folder or on the hub. Only for people who may launch in the project.

    Raises: TrialFailed beside `model.id`.
    """
    if (cached := kept_config(model, project=project)) is not None:
        return cached
    depends_on = [model.model_dump(), _stamps(model.id)]
    refused = _key("config-refused", depends_on)
    spec = _of_model(model)
    op = {"op": "config", "spec": to_json(spec)}
    allowance = allowance_for("config", spec, project=project)
    try:
        answer = _cached_answer("config", depends_on, op, CONFIG_SECONDS, allowance)
    except TrialFailed as failed:
        cache.set(refused, failed.message, REFUSAL_KEPT_SECONDS)
        raise
    config: Mapping[str, Any] = answer["config"]
    return config


def kept_config(model: ModelSource, *, project: Project | None) -> Mapping[str, Any] | None:
    """Return the config.json of a model that was read a while ago, None if it was not: nothing is read for it.

    Raises: TrialFailed beside `model.id` if it was tried a moment ago, and could not be read, or may not be.
    """
    allowance_for("config", _of_model(model), project=project)
    depends_on = [model.model_dump(), _stamps(model.id)]
    if (before := cache.get(_key("config-refused", depends_on))) is not None:
        raise TrialFailed("model.id", before)
    answer = cache.get(_key("config", depends_on))
    if answer is None:
        return None
    config: Mapping[str, Any] = answer["config"]
    return config


def _of_model(model: ModelSource) -> RunSpec:
    return parse_spec({"model": model.model_dump()})


def describe_model(spec: RunSpec, *, project: Project) -> ModelFacts:
    """Return what the spec's model is.

    Raises: TrialFailed beside `model.id` if it cannot be loaded; beside the place of a teacher or of a reward model
    that does not go with it.
    """
    raw = to_json(spec)
    beside = [
        spec.reward_model if spec.needs("reward") else "",
        str(spec.knob("models.teacher_path") or "") if spec.needs("teacher") else "",
    ]
    depends_on = [raw["model"], beside, _stamps(spec.model.id, *beside)]
    allowance = allowance_for("model", spec, project=project)
    answer = _cached_answer("model", depends_on, {"op": "model", "spec": raw}, MODEL_SECONDS, allowance)
    return ModelFacts(
        architecture=str(answer.get("architecture", "")),
        num_parameters=int(answer.get("num_parameters") or 0),
        context_tokens=int(answer.get("context_tokens") or 0),
        dtype=str(answer.get("dtype", "")),
    )


def try_reward(spec: RunSpec, *, project: Project, user: User | None = None) -> tuple[RewardResult, ...]:
    """Return what the spec's reward gives to a few completions: the data's own answers, and wrong ones.

    Raises: TrialForbidden where this person may not try code; TrialFailed; beside `reward.source` if the file raises,
    hangs, or returns something that is no number.
    """
    require_trial(spec, project, user, field="reward.source")
    if is_streamed_from_hub(spec):
        raise TrialUnavailable("data.id", _("Not tried: rows that are streamed from the hub need a network."))
    _require_upload(spec, project)
    raw = to_json(spec)
    limit = raw["knobs"].get("reward.timeout_seconds")
    depends_on = [raw["reward"], limit, raw["data"], raw["model"], _stamps(spec.data.id)]
    op = {"op": "reward", "spec": raw, "inputs_dir": str(uploads_dir()), "samples": REWARD_SAMPLES}
    allowance = allowance_for("reward", spec, project=project)
    answer = _cached_answer("reward", depends_on, op, REWARD_SECONDS, allowance)
    try:
        return tuple(
            RewardResult(
                prompt=str(r["prompt"]),
                completion=str(r["completion"]),
                answer=str(r["answer"]),
                reward=float(r["reward"]),
                seconds=float(r["seconds"]),
            )
            for r in answer["results"]
        )
    except _NO_ANSWER as error:
        raise TrialFailed("reward.source", _("The reward's process gave an answer that is none.")) from error


def try_algorithm(spec: RunSpec, *, project: Project, user: User | None = None) -> tuple[str, ...]:
    """Return which metrics the formulas of the spec's own file tell, tried on a few made-up sequences.

    Raises: TrialForbidden where this person may not try code; TrialFailed beside the knob, with the file's line.
    """
    require_trial(spec, project, user, field="knobs.algorithm.source")
    raw = to_json(spec)
    depends_on = [raw["algorithm"], raw["hardware"], raw["knobs"]]
    op = {"op": "algorithm", "spec": raw}
    answer = _cached_answer("algorithm", depends_on, op, ALGORITHM_SECONDS, Allowance())
    try:
        return tuple(map(str, answer["metrics"]))
    except _NO_ANSWER as error:
        text = _("The process that tries your algorithm gave an answer that is none.")
        raise TrialFailed("knobs.algorithm.source", text) from error


def _require_upload(spec: RunSpec, project: Project) -> None:
    if spec.data.kind != "upload":
        return
    sha256 = spec.data.id.removeprefix("upload:")
    if not Upload.objects.filter(project=project, sha256=sha256).exists():
        raise TrialFailed("data.id", "That file was not uploaded to this project. Upload it again.")
    if not (uploads_dir() / sha256).is_file():
        raise TrialFailed("data.id", "The uploaded file is no longer on the console's disk. Upload it again.")


def _stamps(*ids: str) -> list[Any]:
    """Return what changes when a local file or folder does, so that an edited file is read again."""
    stamps: list[Any] = []
    for name in ids:
        try:
            stat = Path(name).stat()
            stamps.append([stat.st_mtime_ns, stat.st_size])
        except (OSError, ValueError):
            stamps.append(None)
    return stamps


def _cached_answer(
    name: str, depends_on: list[Any], op: Mapping[str, object], timeout_seconds: float, allowance: Allowance
) -> dict[str, Any]:
    key = _key(name, depends_on)
    answer = cache.get(key)
    if answer is None:
        answer = run_trial(op, timeout_seconds=timeout_seconds, allowance=allowance)
        with suppress(RecursionError):  # nested by who writes the answer themselves
            if len(json.dumps(answer)) <= MAX_KEPT_CHARS:
                cache.set(key, answer, KEPT_SECONDS)
    return answer


def _key(name: str, depends_on: list[Any]) -> str:
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return f"trial.{name}.{digest}"


def _data_preview(answer: dict[str, Any]) -> DataPreview:
    return DataPreview(
        columns=tuple(str(c) for c in answer["columns"]),
        num_rows=int(answer["num_rows"]),
        num_train=int(answer["num_train"]),
        num_eval=int(answer["num_eval"]),
        samples=tuple(
            RenderedSample(
                segments=_segments(sample["segments"]),
                num_tokens=int(sample["num_tokens"]),
                prompt=str(sample.get("prompt", "")),
                answer=str(sample.get("answer", "")),
                rejected=_segments(sample.get("rejected", [])),
                num_rejected_tokens=int(sample.get("num_rejected_tokens", 0)),
                label=str(sample.get("label", "")),
            )
            for sample in answer["samples"]
        ),
        edges=tuple(float(e) for e in answer["lengths"]["edges"]),
        counts=tuple(int(c) for c in answer["lengths"]["counts"]),
        num_too_long=int(answer["num_too_long"]),
        share_truncated=float(answer["share_truncated"]),
        mapping_problem=str(answer.get("mapping_problem") or ""),
        mapping_field=str(answer.get("mapping_field") or "data.id"),
        num_left_out=int(answer.get("num_left_out", 0)),
        num_measured=int(answer.get("num_measured", 0)),
        is_beginning=bool(answer.get("is_beginning")),
        recognized={str(field): str(column) for field, column in answer.get("recognized", {}).items()},
    )


def _segments(raw: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    return tuple(Segment(text=str(s["text"]), is_trained=bool(s["is_trained"])) for s in raw)
