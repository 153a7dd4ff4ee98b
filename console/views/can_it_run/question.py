"""The question of *Can it run?*: what an address asks, read and checked, and the addresses of questions.

What is asked: `model` (an id, a hub repository, a folder, or a size in billions), `config` (a pasted config.json, or
the name under which a long one is kept), `method`, `on` (accelerators, side by side), `devices`, `prompt`, `response`,
`within` (hours that a practical step takes at most), `host_gb` (RAM of a node) and `show` (whose details are shown).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.sessions.backends.base import SessionBase
from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.labels.catalog import error_text
from console.labels.json_error import why_not_json
from console.session import keep, text_of
from console.views.can_it_run.diffusion import DiffusionQuestion, read_pictured
from jobs.catalog.accelerator import accelerators
from jobs.catalog.spec.runspec import ModelSource
from jobs.catalog.value import plain_number
from jobs.cluster.ray_api import cluster_state
from jobs.models import Project
from jobs.planner.can_it_run.plans import METHODS, Demand
from jobs.planner.can_it_run.verdict import MOST_HOURS
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planning.policy_model import PlanRefused, policy_shape, shape_of_config
from jobs.planning.question import cluster_fleet

MAX_OPTIONS = 8
MAX_CONFIG_CHARS = 6000
"""Of a config.json without spaces that stands in the address: proxies refuse longer ones. A longer one is kept."""

MAX_DEVICES = 65_536
MAX_TOKENS = 1_000_000
_MAX_TYPED = 40
_NUMBERS = {
    "devices": gettext_lazy("Number of GPUs"),
    "prompt": gettext_lazy("Longest prompt, tokens"),
    "response": gettext_lazy("Longest response, tokens"),
}
_AMOUNTS = {
    "within": (gettext_lazy("A step within, hours"), MOST_HOURS),
    "host_gb": (gettext_lazy("Host RAM of a node, GB"), 1_000_000),
}
_USUAL = ("h200-sxm", "h100-sxm", "a100-80-sxm", "l40s", "rtx-4090")
_SIZE = re.compile(r"(\d+(?:[.,]\d+)?)\s*b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareQuestion:
    """What is asked, as it was read. `problems`: a sentence by field of the form; `note`: what was assumed.
    `typed`: what stands in the boxes of numbers, also what is none. `can_be_read`: the model is not known, and its
    config.json may be looked for (`reads`: it was). `pictured`: a diffusion transformer, which has no `shape`."""

    model: str
    config: str
    method: str
    on: tuple[str, ...]
    devices: int | None
    demand: Demand
    shape: ModelShape | None
    size: float | None
    problems: Mapping[str, str]
    typed: Mapping[str, str]
    note: str
    show: str
    reads: bool
    can_be_read: bool
    within_hours: float | None = None
    host_bytes: int = 0
    pictured: DiffusionQuestion | None = None

    @property
    def is_asked(self) -> bool:
        """True if a model is named."""
        return bool(self.model or self.config)


def read_question(
    query: QueryDict, project: Project | None, *, may_read: bool, session: SessionBase
) -> HardwareQuestion:
    """Return what an address asks; whatever cannot be is told beside its field, and the default stands in its place."""
    problems: dict[str, str] = {}
    model, config = query.get("model", "").strip()[:200], query.get("config", "").strip()
    method = query.get("method", "") or "grpo"
    if method not in METHODS:
        text = _("%(given)s is not a known method. Use one of %(known)s.")
        problems["method"] = text % {"given": repr(method[:40]), "known": ", ".join(METHODS)}
        method = "grpo"
    devices = _typed_number(query, "devices", MAX_DEVICES, problems)
    prompt, response = (_typed_number(query, name, MAX_TOKENS, problems) for name in ("prompt", "response"))
    within, host_gb = (_typed_amount(query, name, problems) for name in _AMOUNTS)
    usual = Demand()
    on = _chosen(query.getlist("on"), project, problems)
    size, shape, note = None, None, ""
    reads = may_read and query.get("read") == "1"
    whole = text_of(session, config)
    if whole is None:
        gone = _("That config.json is not kept here: it was pasted in another session, or a while ago. Paste it again.")
        problems["config"] = gone
    pictured = read_pictured(query, model, whole or "", method, problems) if model or config else None
    if pictured is not None or "config" in problems:
        pass  # a diffusion transformer, or a config.json that says it is one
    elif config:
        config, shape = _pasted(whole or "", model, problems, session)
    elif match := _SIZE.fullmatch(model):
        size = float(match[1].replace(",", "."))
        note = _("A size alone has no model shape to estimate from; only published runs are shown.")
    elif model:
        shape, note = _named(model, problems, may_read=may_read, reads=reads)
    return HardwareQuestion(
        model=model,
        config=config,
        method=method,
        on=on,
        devices=devices,
        demand=Demand(max_prompt=prompt or usual.max_prompt, max_response=response or usual.max_response),
        shape=shape,
        size=size if size is not None else (shape.parameters / 1e9 if shape is not None else None),
        problems=problems,
        typed={name: query.get(name, "").strip()[:_MAX_TYPED] for name in (*_NUMBERS, *_AMOUNTS)},
        note=note,
        show=query.get("show", ""),
        reads=reads,
        can_be_read=may_read and not reads and "model" in problems,
        within_hours=within,
        host_bytes=round((host_gb or 0.0) * 1e9),
        pictured=pictured,
    )


def _named(model: str, problems: dict[str, str], *, may_read: bool, reads: bool) -> tuple[ModelShape | None, str]:
    """Return the shape of a model by its name. What is typed letter by letter is looked up in the catalog alone."""
    is_path = model.startswith(("/", "~", "."))
    source = ModelSource(kind="path" if is_path else "hub", id=model)
    try:
        return policy_shape(source, may_read=may_read, reads=reads)
    except PlanRefused as refused:
        text = _("%(name)s is not known here.") % {"name": model} if refused.is_unread else error_text(refused)
        problems["model"] = f"{text} {_('Paste its config.json to get an estimate.')}"
        return None, ""


def _pasted(config: str, model: str, problems: dict[str, str], session: SessionBase) -> tuple[str, ModelShape | None]:
    """Return a config.json without spaces, or the name under which a long one is kept, and the shape in it."""
    try:
        values = json.loads(config)
        shape = shape_of_config(values, name=model or _("the pasted model"))
        config = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        return (config if len(config) <= MAX_CONFIG_CHARS else keep(session, config)), shape
    except PlanRefused as refused:
        problems["config"] = error_text(refused)
    except (ValueError, RecursionError) as error:
        why = why_not_json(config, error)
        problems["config"] = _("This is not JSON: %(why)s. Paste the whole config.json.") % {"why": why}
    return config[:MAX_CONFIG_CHARS], None


def _typed_number(query: QueryDict, name: str, most: int, problems: dict[str, str]) -> int | None:
    typed = plain_number(query.get(name, ""))
    if not typed:
        return None
    if typed.isascii() and typed.isdigit() and 1 <= int(typed[:12]) <= most:
        return int(typed)
    text = _("%(given)s is not allowed for “%(field)s”. Use a whole number from 1 to %(most)s.")
    problems[name] = text % {"given": repr(typed[:_MAX_TYPED]), "field": _NUMBERS[name], "most": f"{most:,}"}
    return None


def _typed_amount(query: QueryDict, name: str, problems: dict[str, str]) -> float | None:
    typed = plain_number(query.get(name, "")).replace(",", ".")
    if not typed:
        return None
    label, most = _AMOUNTS[name]
    try:
        if 0 < (amount := float(typed)) <= most:
            return amount
    except ValueError:
        pass
    text = _("%(given)s is not allowed for “%(field)s”. Use a number above 0, up to %(most)s.")
    problems[name] = text % {"given": repr(typed[:_MAX_TYPED]), "field": label, "most": f"{most:,}"}
    return None


def _chosen(names: Iterable[str], project: Project | None, problems: dict[str, str]) -> tuple[str, ...]:
    """Return the accelerators that are asked for; without any, the cluster's own and some usual ones."""
    wanted = list(dict.fromkeys(name for name in names if name))
    valid = [name for name in wanted if name in accelerators()]
    if strange := [name for name in wanted if name not in valid]:
        text = _("%(given)s is not a known accelerator. Choose from the list.")
        problems["on"] = text % {"given": repr(strange[0][:60])}
    if len(valid) > MAX_OPTIONS:
        text = _("%(n)s accelerators are too many side by side. Choose up to %(most)s.")
        problems["on"] = text % {"n": len(valid), "most": MAX_OPTIONS}
    if valid:
        return tuple(valid[:MAX_OPTIONS])
    try:
        own = [cluster_fleet(cluster_state(), project)[0].accelerator.id]
    except PlanRefused:
        own = []
    return tuple(dict.fromkeys((*own, *_USUAL)))


def address_of(question: HardwareQuestion, *, show: str = "", read: bool = False) -> str:
    """Return the address of the same question: `show` one hardware's details, `read` the model's config.json."""
    usual = {"prompt": str(Demand().max_prompt), "response": str(Demand().max_response)}
    pairs = [
        ("model", question.model),
        ("config", question.config),
        ("method", question.method),
        *(("on", name) for name in question.on),
        *((name, text) for name, text in question.typed.items() if text != usual.get(name)),
        ("read", "1" if read or question.reads else ""),
        *(question.pictured.texts.items() if question.pictured is not None else ()),
        ("show", show),
    ]
    return f"{reverse('guide-devices')}?{urlencode([(name, value) for name, value in pairs if value])}"
