"""The planner beside the form of New run: does the run fit, how long is a step, here or on other hardware."""

import json
import time
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from console.forms.new_run.form import base_of
from console.forms.new_run.recipes import recipe_of
from console.labels.catalog import error_text, field_label, knob_label
from console.labels.json_error import why_not_json
from console.views.plan.cpu import cpu_panel
from console.views.plan.findings import input_of
from console.views.plan.panel import PlanPanel, estimate_panel, unknown_panel
from jobs.accounts.access import User
from jobs.catalog.accelerator import accelerators
from jobs.catalog.knob import knobs
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.ray_api import ClusterState
from jobs.models import Project
from jobs.planner.result import JobInvalid
from jobs.planning.policy_model import PlanRefused
from jobs.planning.question import (
    PlannerQuestion,
    WhatIf,
    estimate_of,
    question,
    recipe_hardware,
    what_if_of,
)

_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
_KNOBS = {
    "policy.layout.tensor": ("parallel.tensor_parallel_size",),
    "policy.layout.pipeline": ("parallel.pipeline_parallel_size",),
    "policy.layout.virtual": ("parallel.virtual_pipeline_stages",),
    "policy.layout.first_stage_layers": ("parallel.first_stage_layers", "parallel.pipeline_parallel_size"),
    "policy.layout.context": ("parallel.context_parallel_size",),
    "policy.layout.ulysses": ("parallel.sequence_parallel_size",),
    "policy.layout.expert": ("parallel.expert_parallel_size",),
    "policy.layout.expert_tensor": ("parallel.expert_tensor_parallel_size",),
    "policy.layout.num_devices": ("placement.policy_gpus_per_node", "hardware.policy_ranks"),
    "policy.lora_rank": ("lora.rank",),
    "engine.tensor": ("placement.rollout_tensor_parallel", "hardware.tensor_parallel_size"),
    "engine.pipeline": ("placement.rollout_pipeline_parallel",),
    "engine.expert": ("placement.rollout_expert_parallel",),
    "engine.num_engines": ("placement.rollout_engines", "hardware.rollout_engines"),
    "engine.utilization": ("rollout.gpu_memory_fraction",),
    "engine.max_num_seqs": ("rollout.max_num_seqs",),
    "engine.max_batched_tokens": ("rollout.max_batched_tokens",),
    "engine.max_model_len": ("rollout.max_new_tokens",),
    "engine_devices": ("placement.rollout_gpus_per_node", "placement.rollout_engines", "hardware.rollout_engines"),
}
"""Where a field of the planner's job is set: the first of these that the run has."""


def plan_answer(request: HttpRequest, spec: RunSpec, project: Project, state: ClusterState) -> dict[str, object]:
    """Return what the check of the form answers of the plan: the panel's pieces, the verdict, problems by input."""
    began = time.perf_counter()
    panel, problems, recipe_note = _panel(request.POST, spec, project, request.user, state)
    milliseconds = (time.perf_counter() - began) * 1000
    return {
        "verdict": render_to_string("new_run/plan.html", {"plan": panel, "recipe_note": recipe_note}),
        "strip": render_to_string("new_run/plan_strip.html", {"plan": panel}),
        "bars": render_to_string("new_run/plan_bars.html", {"plan": panel}),
        "state": panel.state,
        "is_what_if": bool(recipe_note or request.POST.get("plan.accelerator")),
        "milliseconds": None if panel.state == "unknown" else round(milliseconds) or 1,
        "problems": problems,
        "is_unread": panel.is_unread,
        "has_layouts": panel.time is not None,
    }


def accelerator_choices() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (vendor, [(id, label)]) of the hardware that can be planned for."""
    by_vendor: dict[str, list[tuple[str, str]]] = {vendor: [] for vendor in _VENDORS.values()}
    for each in sorted(accelerators().values(), key=lambda a: a.label):
        if not each.is_host:
            by_vendor[_VENDORS[each.vendor]].append((each.id, each.label))
    return list(by_vendor.items())


def _panel(
    form: Mapping[str, Any], spec: RunSpec, project: Project, user: User, state: ClusterState
) -> tuple[PlanPanel, list[dict[str, str]], str]:
    """Return the panel, problems by input, and whose hardware it is planned on where the cluster has none."""
    try:
        planner_question = planner_question_of(form, spec, project, user, state, reads=False, takes_cpu=True)
        show = cpu_panel if planner_question.fleet.accelerator.is_host else estimate_panel
        return show(estimate_of(planner_question), planner_question), [], planner_question.recipe_note
    except PlanRefused as error:
        message = error_text(error)
        problems: list[dict[str, str]] = []
        if isinstance(error.__cause__, JobInvalid):
            message, problems = _beside_its_knob(error.__cause__, spec)
        elif error.field.startswith("what_if."):
            problems = [{"field": error.field.replace("what_if", "plan", 1), "message": message}]
        return unknown_panel(message, needs_config=error.needs_config, is_unread=error.is_unread), problems, ""


def planner_question_of(
    form: Mapping[str, Any],
    spec: RunSpec,
    project: Project,
    user: User,
    state: ClusterState,
    *,
    reads: bool = True,
    takes_cpu: bool = False,
) -> PlannerQuestion:
    """Return what the form asks of the planner (see jobs.planning.question.question). Raises: PlanRefused."""
    texts = {name.removeprefix("plan."): str(text) for name, text in form.items() if name.startswith("plan.")}
    config_text = texts.get("config", "") if texts.get("config_of") == spec.model.id else ""
    return question(
        spec,
        project=project,
        user=user,
        state=state,
        what_if=what_if_of(texts),
        fallback=None if state.gpus_total else _recipes_hardware(form, spec),
        config=config_of(config_text) if config_text else None,
        reads=reads,
        takes_cpu=takes_cpu,
    )


def _recipes_hardware(form: Mapping[str, Any], spec: RunSpec) -> WhatIf | None:
    """Return the hardware of the recipe that the form was started from, None if it was started from none."""
    used = recipe_of(base_of(str(form.get("base", ""))))
    return None if used is None else recipe_hardware(used, spec)


def config_of(text: str) -> dict[str, object]:
    """Return the object of a pasted config.json. Raises: PlanRefused for text that is none."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanRefused("config", _("That is not JSON: %(error)s.") % {"error": why_not_json(text, error)}) from error
    if not isinstance(config, dict):
        raise PlanRefused("config", _('A config.json is a JSON object, as in {"model_type": …}.'))
    return config


def _beside_its_knob(error: JobInvalid, spec: RunSpec) -> tuple[str, list[dict[str, str]]]:
    """Return what cannot be in the words of the form, and the problem beside the input that sets it, if one does."""
    name = next((knob_id for knob_id in _KNOBS.get(error.field, ()) if _has(knob_id, spec)), "")
    if not name:
        return error_text(error), []
    label = knob_label(name) if name in knobs() else field_label(name)
    message = error_text(error).replace(error.field, label)
    return message, [{"field": input_of(name, spec), "message": message}]


def _has(name: str, spec: RunSpec) -> bool:
    return spec.is_native if name.startswith("hardware.") else name in spec.knobs
