"""The question of *Can it run?*: what an address asks, read and checked, and the addresses of questions.

What is asked: `model` (an id, a hub repository, a folder, or a size in billions), `config` (a pasted config.json),
`method`, `on` (accelerators, side by side), `devices`, `prompt`, `response` and `show` (whose details are shown).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _

from console.catalog_words import error_text
from console.forms.new_run import nearest
from console.views.can_it_run_pictures import Pictured, read_pictured
from jobs.catalog.accelerator import Accelerator, accelerators
from jobs.catalog.model import find_model
from jobs.catalog.sections import ModelSource
from jobs.catalog.trainer import trainers
from jobs.cluster import cluster_state
from jobs.models import Project
from jobs.planner.answer import Need
from jobs.planner.plans import METHODS, Demand
from jobs.planner.shapes import ModelShape
from jobs.planning import PlanRefused, cluster_fleet, policy_shape, shape_of_config

MAX_OPTIONS = 8
MAX_CONFIG_CHARS = 6000
"""Of a config.json without spaces: more would make addresses that proxies refuse."""

MAX_DEVICES = 65_536
MAX_TOKENS = 1_000_000
_USUAL = ("h200-sxm", "h100-sxm", "a100-80-sxm", "l40s", "rtx-4090")
_SIZE = re.compile(r"(\d+(?:[.,]\d+)?)\s*b?", re.IGNORECASE)
_TRAINERS = ("verl", "openrlhf", "native")
"""Who plans it on New run: the first that offers the algorithm, those first whose roles share devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, as it was read. `problems`: a sentence by field of the form; `note`: what was assumed.
    `can_be_read`: the model is not known, and its config.json may be looked for (`reads`: it was). `pictured`: a
    diffusion transformer, which has no `shape`."""

    model: str
    config: str
    method: str
    on: tuple[str, ...]
    devices: int | None
    demand: Demand
    shape: ModelShape | None
    size: float | None
    problems: Mapping[str, str]
    note: str
    show: str
    reads: bool
    can_be_read: bool
    pictured: Pictured | None = None

    @property
    def is_asked(self) -> bool:
        """True if a model is named."""
        return bool(self.model or self.config)


def read_question(asked: QueryDict, project: Project | None, *, may_read: bool) -> Question:
    """Return what an address asks; whatever cannot be is told beside its field, and the default stands in its place."""
    problems: dict[str, str] = {}
    model, config = asked.get("model", "").strip()[:200], asked.get("config", "").strip()
    method = asked.get("method", "") or "grpo"
    if method not in METHODS:
        text = _("%(given)s is not a known method. Use one of %(known)s.")
        problems["method"] = text % {"given": repr(method[:40]), "known": ", ".join(METHODS)}
        method = "grpo"
    devices = _whole(asked, "devices", MAX_DEVICES, problems)
    prompt, response = (_whole(asked, name, MAX_TOKENS, problems) for name in ("prompt", "response"))
    usual = Demand()
    on = _chosen(asked.getlist("on"), project, problems)
    size, shape, note = None, None, ""
    reads = may_read and asked.get("read") == "1"
    pictured = read_pictured(asked, model, config, method, problems) if model or config else None
    if pictured is not None or "config" in problems:
        pass  # a diffusion transformer, or a config.json that says it is one
    elif config:
        config, shape = _pasted(config, model, problems)
    elif found := _SIZE.fullmatch(model):
        size = float(found[1].replace(",", "."))
        note = _("A size alone has no shape to reckon with, so that only what was published answers.")
    elif model:
        shape, note = _named(model, problems, may_read=may_read, reads=reads)
    return Question(
        model=model,
        config=config,
        method=method,
        on=on,
        devices=devices,
        demand=Demand(max_prompt=prompt or usual.max_prompt, max_response=response or usual.max_response),
        shape=shape,
        size=size if size is not None else (shape.parameters / 1e9 if shape is not None else None),
        problems=problems,
        note=note,
        show=asked.get("show", ""),
        reads=reads,
        can_be_read=may_read and not reads and "model" in problems,
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
        problems["model"] = f"{text} {_('Paste its config.json, and it is reckoned.')}"
        return None, ""


def _pasted(config: str, model: str, problems: dict[str, str]) -> tuple[str, ModelShape | None]:
    """Return a config.json without spaces, and the shape in it."""
    try:
        values = json.loads(config)
        config = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        if len(config) > MAX_CONFIG_CHARS:
            text = _("The config.json has %(n)s characters. Up to %(most)s fit into an address; leave out long lists.")
            problems["config"] = text % {"n": f"{len(config):,}", "most": f"{MAX_CONFIG_CHARS:,}"}
            return config[:MAX_CONFIG_CHARS], None
        return config, shape_of_config(values, name=model or _("the pasted model"))
    except PlanRefused as refused:
        problems["config"] = error_text(refused)
    except (ValueError, RecursionError) as error:
        problems["config"] = _("This is not JSON: %(why)s. Paste the whole config.json.") % {"why": str(error)[:120]}
    return config[:MAX_CONFIG_CHARS], None


def _whole(asked: QueryDict, name: str, most: int, problems: dict[str, str]) -> int | None:
    given = asked.get(name, "").strip().replace(",", "")
    if not given:
        return None
    if given.isascii() and given.isdigit() and 1 <= int(given[:12]) <= most:
        return int(given)
    text = _("%(given)s is not allowed here. Use a whole number from 1 to %(most)s.")
    problems[name] = text % {"given": repr(given[:40]), "most": f"{most:,}"}
    return None


def _chosen(names: Iterable[str], project: Project | None, problems: dict[str, str]) -> tuple[str, ...]:
    """Return the accelerators that are asked for; without any, the cluster's own and some usual ones."""
    asked = list(dict.fromkeys(name for name in names if name))
    known = [name for name in asked if name in accelerators()]
    if strange := [name for name in asked if name not in known]:
        text = _("%(given)s is not a known accelerator. Choose from the list.")
        problems["on"] = text % {"given": repr(strange[0][:60])}
    if len(known) > MAX_OPTIONS:
        text = _("%(n)s accelerators are too many side by side. Choose up to %(most)s.")
        problems["on"] = text % {"n": len(known), "most": MAX_OPTIONS}
    if known:
        return tuple(known[:MAX_OPTIONS])
    try:
        own = [cluster_fleet(cluster_state(), project)[0].accelerator.id]
    except PlanRefused:
        own = []
    return tuple(dict.fromkeys((*own, *_USUAL)))


def address_of(question: Question, *, show: str = "", read: bool = False) -> str:
    """Return the address of the same question: `show` one hardware's details, `read` the model's config.json."""
    demand, usual = question.demand, Demand()
    pairs = [
        ("model", question.model),
        ("config", question.config),
        ("method", question.method),
        *(("on", name) for name in question.on),
        ("devices", str(question.devices or "")),
        ("prompt", str(demand.max_prompt) if demand.max_prompt != usual.max_prompt else ""),
        ("response", str(demand.max_response) if demand.max_response != usual.max_response else ""),
        ("read", "1" if read or question.reads else ""),
        *(question.pictured.asked.items() if question.pictured is not None else ()),
        ("show", show),
    ]
    return f"{reverse('guide-devices')}?{urlencode([(name, value) for name, value in pairs if value])}"


def plan_url(question: Question, accelerator: Accelerator, need: Need) -> str:
    """Return the address of a New run page that plans this: algorithm, hardware, model, lengths and devices, as far as
    the trainer has knobs for them."""
    recipe, devices = METHODS[question.method], need.num_devices or 1
    per_node = min(devices, need.job.fleet.devices_per_node if need.job is not None else devices)
    able = (name for name in _TRAINERS if trainers()[name].offers(recipe.algorithm, trainers()[name].versions[0]))
    chosen = nearest(algorithm=recipe.algorithm, trainer=next(able, ""), version="")
    wanted = {
        "rollout.max_prompt_tokens": question.demand.max_prompt,
        "rollout.max_new_tokens": question.demand.max_response,
        "train.max_sequence_tokens": question.demand.longest,
        "placement.policy_nodes": devices // per_node,
        "placement.policy_gpus_per_node": per_node,
        "lora.rank": need.job.policy.lora_rank if need.job is not None and recipe.method != "full" else None,
    }
    here = chosen.knobs()
    query = [("algorithm", chosen.algorithm), ("trainer", chosen.trainer), ("version", chosen.version)]
    query += [("on", accelerator.id), ("nodes", str(devices // per_node)), ("per_node", str(per_node))]
    if not question.config and (name := _hub_id(question.model)):
        query.append(("set", f"model.id={name}"))
    query += [("set", f"{name}={value}") for name, value in wanted.items() if value is not None and name in here]
    return f"{reverse('new-run')}?{urlencode(query)}"


def _hub_id(name: str) -> str:
    """Return the repository of a known model that a name means, "" if there is none."""
    try:
        known = find_model(name)
    except LookupError:
        return ""
    return name if "/" in name else next(iter(known.hub), "")
