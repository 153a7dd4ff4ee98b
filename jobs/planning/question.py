"""The one way from a spec, a project and a cluster to the planner: which model, on what, at which price.

    asked = question(spec, project=project, user=user, state=cluster_state(), what_if=WhatIf(accelerator="h200"))
    estimate(asked) -> Estimate
    advice(asked) -> Advice
    moved_by(asked) -> constants that move the answer most
    layouts(asked, goal="time") -> SearchResult

Hardware is hypothetical (`WhatIf`) or what the cluster has. Whatever cannot be is a PlanRefused: the field at fault and
a sentence.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.accounts.access import User, allows, role
from jobs.catalog.accelerator import Accelerator, find_accelerator
from jobs.catalog.algorithm import is_in
from jobs.catalog.recipe import Recipe, UnknownRecipe, recipe
from jobs.catalog.sentence import sentence_of
from jobs.catalog.spec.runspec import ModelSource, RunSpec
from jobs.cluster.ray_api import ClusterState, Node
from jobs.models import Project
from jobs.planner.constant import Constants
from jobs.planner.estimate import estimate
from jobs.planner.fleet import FleetInvalid, fleet_of
from jobs.planner.job import Fleet, Job
from jobs.planner.memory.cpu import host_fleet
from jobs.planner.read.context import Models, Workload
from jobs.planner.read.spec import read_job
from jobs.planner.result import Estimate, JobInvalid
from jobs.planner.search.advice import PlanAdvice, advise
from jobs.planner.search.layouts import GOALS, MAX_LAYOUTS, Goal, SearchResult, search
from jobs.planner.sensitivity import Sensitivity, sensitivities
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planning.earlier_lengths import earlier_lengths
from jobs.planning.policy_model import PlanRefused, policy_shape
from jobs.planning.search_pool import PlannerCall, answer_apart
from jobs.planning.settings import constants_of, prices_of
from jobs.preflight.preview import known_data

MAX_LAYOUTS_LISTED = 100
_PER_NODE = 8  # devices of a node of a recipe's hardware
_MODEL_KNOBS = {"critic": "models.critic_path", "reference": "models.reference_path", "teacher": "models.teacher_path"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Hypothetical devices, whatever the cluster has. `accelerator`: its id or any of its names; `host_gb`: RAM of a
    node, 0 if nobody said."""

    accelerator: str
    nodes: int = 1
    devices_per_node: int = 8
    host_gb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerQuestion:
    """What the planner is asked: a spec, the shapes of its models, hardware, what is known of the data, the constants.

    `job` is the spec on this ground. `notes`: sentences on what was assumed here. `recipe_note`: says that it is
    planned on a recipe's hardware where the cluster has none, "" where it has, or where somebody chose the hardware.
    `lengths_note`: says whose mean lengths seconds follow, "" where no earlier run measured any.
    """

    spec: RunSpec
    models: Models
    fleet: Fleet
    workload: Workload
    constants: Constants
    job: Job
    notes: tuple[str, ...]
    recipe_note: str = ""
    lengths_note: str = ""


def question(
    spec: RunSpec,
    *,
    project: Project | None,
    user: User | None,
    state: ClusterState,
    what_if: WhatIf | None = None,
    fallback: WhatIf | None = None,
    config: Mapping[str, Any] | None = None,
    workload: Workload | None = None,
    reads: bool = True,
    takes_cpu: bool = False,
    takes_lengths: bool = True,
    before: str = "",
) -> PlannerQuestion:
    """Return what the planner is asked about a spec in a project, or, without one, on what is shipped alone.

    `what_if`: other hardware than the cluster's; `fallback`: a recipe's, where the cluster has none; `config`: the
    policy's own config.json; `workload`: what is known of the data, whose zeros are filled in from a preview, if there
    was one. Without `reads` no file is read for it, which takes seconds: of a model that is not known, only what was
    read a while ago is used. `takes_cpu`: a run of the built-in trainer that goes on the CPU is no refusal; only the
    bytes of its roles that train and score are then estimated, all else of the estimate means nothing.
    `takes_lengths`: seconds follow the mean lengths that an earlier run like it measured, where `workload` says none.
    `before`: a run, to be planned by what other runs had measured before it finished.
    Raises: PlanRefused.
    """
    may_read = project is not None and user is not None and allows(role(user, project), "editor")
    cpu = _cpu_fleet(spec, state) if takes_cpu and what_if is None else None
    # The model first: who asks again once it was read must not be refused before it is, for want of accelerators.
    shape, read_as = policy_shape(spec.model, config=config, project=project, may_read=may_read, reads=reads)
    whose = ""
    try:
        fleet, fleet_note = (cpu, "") if cpu is not None else _fleet(spec, project, state, what_if)
    except PlanRefused as refused:
        if fallback is None or refused.field != "what_if" or spec.hardware.device == "cpu":
            raise
        fleet, fleet_note = hypothetical_fleet(fallback, project), ""
        text = _("Planned on %(n)s × %(label)s, the recipe's hardware: the cluster has none to plan for.")
        whose = text % {"n": f"{fleet.num_devices:,}", "label": fleet.accelerator.label}
    places = {name: _place_of(spec, knob_id) for name, knob_id in _MODEL_KNOBS.items()}
    places["reward"] = spec.reward_model
    others = {
        name: _shape_or_none(place, project=project, may_read=may_read, reads=reads) for name, place in places.items()
    }
    models = Models(policy=shape, **others)
    data, lengths_note = _workload(spec, project, workload or Workload()), ""
    if takes_lengths:
        data, lengths_note = _with_earlier(data, spec, project, before)
    try:
        job = read_job(spec, models, fleet, workload=data)
    except JobInvalid as invalid:
        raise PlanRefused("", sentence_of(invalid)) from invalid
    return PlannerQuestion(
        spec=spec,
        models=models,
        fleet=fleet,
        workload=data,
        constants=constants_of(project, fleet.accelerator.id, before=before),
        job=job,
        notes=tuple(note for note in (whose, fleet_note, read_as, lengths_note) if note),
        recipe_note=whose,
        lengths_note=lengths_note,
    )


def estimate_of(about: PlannerQuestion) -> Estimate:
    """Return the whole answer. Raises: PlanRefused where its sizes cannot be laid out."""
    try:
        made = estimate(about.job, about.constants)
    except JobInvalid as invalid:
        raise PlanRefused("", sentence_of(invalid)) from invalid
    return replace(made, notes=(*about.notes, *made.notes))


def advice(about: PlannerQuestion) -> PlanAdvice:
    """Return what would make the run fit, and what would make it faster. Raises: PlanRefused."""
    try:
        return advise(about.spec, about.models, about.fleet, workload=about.workload, constants=about.constants)
    except JobInvalid as invalid:
        raise PlanRefused("", sentence_of(invalid)) from invalid


def sensitivities_of(about: PlannerQuestion) -> tuple[Sensitivity, ...]:
    """Return the constants that move the answer, the one that moves it most first. Raises: PlanRefused."""
    try:
        return sensitivities(about.job, about.constants)
    except JobInvalid as invalid:
        raise PlanRefused("", sentence_of(invalid)) from invalid


def layouts(
    about: PlannerQuestion, *, goal: str = "time", limit: int = 20, ask: PlannerCall = answer_apart
) -> SearchResult:
    """Return the best layouts of the run on all of the hardware; `ask` calls the search. Raises: PlanRefused."""
    if goal not in GOALS:
        text = _("%(given)r is not allowed for the goal. Use one of %(known)s.")
        raise PlanRefused("goal", text % {"given": goal, "known": ", ".join(GOALS)})
    if not 1 <= limit <= MAX_LAYOUTS_LISTED:
        text = _("%(given)s is not allowed for the number of layouts. Use a whole number from 1 to %(most)s.")
        raise PlanRefused("limit", text % {"given": limit, "most": MAX_LAYOUTS_LISTED})
    chosen: Goal = goal  # type: ignore[assignment]  # it is one of GOALS
    try:
        return ask(
            search,
            about.spec,
            about.models,
            about.fleet,
            goal=chosen,
            limit=limit,
            most=MAX_LAYOUTS,
            workload=about.workload,
            constants=about.constants,
        )
    except JobInvalid as invalid:
        raise PlanRefused("", sentence_of(invalid)) from invalid


def what_if_of(texts: Mapping[str, str]) -> WhatIf | None:
    """Return the hardware that a form or an address names (`accelerator`, `nodes`, `devices_per_node`), None if it
    names no accelerator. Raises: PlanRefused.
    """
    if not (accelerator := texts.get("accelerator", "").strip()):
        return None
    numbers = {}
    for name in ("nodes", "devices_per_node"):
        if number := texts.get(name, "").strip():
            try:
                numbers[name] = int(number)
            except ValueError:
                text = _("%(given)r is not allowed for %(name)s. Use a whole number.")
                raise PlanRefused(f"what_if.{name}", text % {"given": number[:40], "name": name}) from None
    return WhatIf(accelerator=accelerator, **numbers)


def hardware_of_recipe(recipe_id: str, spec: RunSpec) -> WhatIf | None:
    """Return the hardware that a recipe names, None for no recipe. Raises: PlanRefused for one that is not known."""
    try:
        return recipe_hardware(recipe(recipe_id), spec) if recipe_id else None
    except UnknownRecipe as unknown:
        raise PlanRefused("recipe", sentence_of(unknown)) from unknown


def recipe_hardware(recipe: Recipe, spec: RunSpec) -> WhatIf | None:
    """Return the hardware that a recipe names, as many devices as a run takes that was started from it; None where it
    names none."""
    if not recipe.accelerators:
        return None
    devices = max(spec.num_workers, 1)
    per_node = min(devices, _PER_NODE)
    return WhatIf(
        accelerator=recipe.accelerators[0],
        nodes=-(-devices // per_node),
        devices_per_node=per_node,
        host_gb=recipe.host_gb,
    )


def hypothetical_fleet(what_if: WhatIf, project: Project | None) -> Fleet:
    """Return hypothetical hardware, at the project's price. Raises: PlanRefused."""
    try:
        kind = find_accelerator(what_if.accelerator)
        fleet = fleet_of(
            kind,
            nodes=what_if.nodes,
            devices_per_node=what_if.devices_per_node,
            host_bytes=what_if.host_gb * 10**9,
        )
    except LookupError as unknown:
        raise PlanRefused("what_if.accelerator", sentence_of(unknown)) from unknown
    except FleetInvalid as invalid:
        raise PlanRefused(f"what_if.{invalid.field}", sentence_of(invalid)) from invalid
    return _priced(fleet, project)


def cluster_fleet(state: ClusterState, project: Project | None) -> tuple[Fleet, str]:
    """Return the cluster's devices, and a sentence if there are several kinds: the most numerous one is taken.

    Memory of a node is what Ray may give away, a little less than it has. Raises: PlanRefused.
    """
    if not state.is_reachable:
        text = _("The cluster does not answer, so its devices are unknown. Choose hardware to plan for.")
        raise PlanRefused("what_if", text)
    nodes = [node for node in state.nodes if node.gpus >= 1]
    if not nodes:
        raise PlanRefused("what_if", _("The cluster has no GPUs. Choose hardware to plan for."))
    counts: Counter[tuple[str, int]] = Counter()
    for node in nodes:
        counts[_kind(node)] += int(node.gpus)
    (name, per_node), _most = counts.most_common(1)[0]
    alike = [node for node in nodes if _kind(node) == (name, per_node)]
    if not name:
        text = _("Ray does not report the model of the cluster's GPUs. Choose hardware to plan for.")
        raise PlanRefused("what_if", text)
    try:
        kind = find_accelerator(name)
    except LookupError as unknown:
        raise PlanRefused("what_if", sentence_of(unknown)) from unknown
    least = min(int(node.memory_bytes) for node in alike)
    fleet = fleet_of(kind, nodes=len(alike), devices_per_node=per_node, host_bytes=least)
    return _priced(fleet, project), _of_several(len(counts), len(alike), per_node, kind)


def _fleet(spec: RunSpec, project: Project | None, state: ClusterState, what_if: WhatIf | None) -> tuple[Fleet, str]:
    if what_if is not None:
        return hypothetical_fleet(what_if, project), ""
    if spec.hardware.device == "cpu":
        text = _("Runs on CPU are not estimated. Choose hardware to plan for.")
        raise PlanRefused("what_if", text)
    return cluster_fleet(state, project)


def _cpu_fleet(spec: RunSpec, state: ClusterState) -> Fleet | None:
    """Return the largest node as the CPU that a run of the built-in trainer goes on, None if it does not."""
    is_on_cpu = spec.hardware.device == "cpu" or (spec.hardware.device == "auto" and state.device == "cpu")
    if not state.is_reachable or not spec.is_native or not is_on_cpu:
        return None
    return host_fleet(spec.num_workers, max(int(node.memory_bytes) for node in state.nodes))


def _priced(fleet: Fleet, project: Project | None) -> Fleet:
    currency = project.currency if project is not None else fleet.currency
    return replace(fleet, price=prices_of(project).get(fleet.accelerator.id), currency=currency)


def _kind(node: Node) -> tuple[str, int]:
    return node.accelerator, int(node.gpus)


def _of_several(kinds: int, nodes: int, per_node: int, accelerator: Accelerator) -> str:
    if kinds == 1:
        return ""
    text = ngettext(
        "The cluster has several kinds of nodes; the estimate uses %(n)s node of %(each)s × %(label)s.",
        "The cluster has several kinds of nodes; the estimate uses %(n)s nodes of %(each)s × %(label)s.",
        nodes,
    )
    return text % {"n": nodes, "each": per_node, "label": accelerator.label}


def _place_of(spec: RunSpec, knob_id: str) -> str:
    chosen = spec.knobs.get(knob_id)
    return str(chosen.value or "") if chosen is not None else ""


def _shape_or_none(place: str, *, project: Project | None, may_read: bool, reads: bool) -> ModelShape | None:
    """Return the shape of a model beside the policy, a folder or a hub id; None where it cannot be had."""
    if not place:
        return None
    kind = "path" if place.startswith(("/", "~", ".")) else "hub"
    try:
        source = ModelSource(kind=kind, id=place)  # type: ignore[arg-type]
        return policy_shape(source, project=project, may_read=may_read, reads=reads)[0]
    except PlanRefused:
        return None


def _workload(spec: RunSpec, project: Project | None, workload: Workload) -> Workload:
    """Return what is known of the data: what was said, then what a preview has counted.

    A preview of prompts says nothing of answers, so that for reinforcement learning it gives the number of samples.
    """
    data = None if project is None else known_data(spec, project=project)
    if data is None:
        return workload
    filled = replace(workload, samples=workload.samples or data.num_train)
    if is_in(spec.algorithm, "rl") or workload.mean_sample or not sum(data.counts):
        return filled
    middles = [(low + high) / 2 for low, high in zip(data.edges, data.edges[1:], strict=False)]
    mean = sum(m * n for m, n in zip(middles, data.counts, strict=True)) / sum(data.counts)
    return replace(filled, mean_prompt=mean)


def _with_earlier(workload: Workload, spec: RunSpec, project: Project | None, before: str) -> tuple[Workload, str]:
    """Return the workload with the mean lengths of an earlier run like it where nobody said any, and whose they are."""
    earlier = None if project is None or workload.mean_response else earlier_lengths(project, spec, before=before)
    if earlier is None:
        return workload, ""
    text = _("Responses of %(tokens)s tokens on average, as %(run)s measured; its model, data and limits are the same.")
    note = text % {"tokens": f"{earlier.response:,.0f}", "run": earlier.run}
    return replace(workload, earlier_prompt=earlier.prompt, earlier_response=earlier.response), note
