"""The sweep of the New run page: what its inputs say as a sweep, what would be launched, and the launch."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, JsonResponse
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from console.budget import expensive
from console.forms.new_run.form import base_of, form_to_raw, minimal, secrets_in
from console.sweep_launch import launch_sweep
from console.views.new_run.page import project_to_launch_in
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import Problem, SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import value_text
from jobs.cluster.ray_api import ClusterState, cluster_state
from jobs.runs.admission import demand
from jobs.runs.launch import KeyReused
from jobs.sweeps.plan import MAX_KNOBS, SweepPlan
from jobs.sweeps.points import Point, short_name
from jobs.sweeps.sweeps import plan_study

_SHOWN = 6  # points of the preview


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPanel:
    """What the sweep would launch: how much in all and at once, and its first points."""

    num_runs: int
    at_once: int
    cpus: float
    gpus: float
    is_too_much: bool  # so many at once need more than the whole cluster has
    cluster_cpus: float
    cluster_gpus: float
    heads: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]
    num_more: int


@require_POST
@expensive
def check(request: HttpRequest) -> JsonResponse:
    """Say what is wrong with the sweep, what it would launch, and how to launch it elsewhere."""
    project = project_to_launch_in(request)
    sweep, places = read_sweep(request.POST)
    try:
        base, plan, points, specs = plan_study(spec=_spec(request), sweep=sweep)
    except SpecInvalid as error:
        return JsonResponse({"problems": _plain(error.problems, places)})
    panel = sweep_panel(plan, points, specs, cluster_state())
    return JsonResponse(
        {
            "problems": [],
            "summary": render_to_string("new_run/sweep_preview.html", {"panel": panel}, request),
            "launch": launch_label(plan),
            "commands": commands(base, sweep, project=project.slug),
        }
    )


@sensitive_post_parameters()
@require_POST
def launch(request: HttpRequest) -> JsonResponse:
    """Queue the runs of the sweep, all or none."""
    project = project_to_launch_in(request)
    sweep, places = read_sweep(request.POST)
    key = request.POST.get("idempotency_key", "")
    try:
        spec = _spec(request)
        study, _is_new = launch_sweep(
            spec=spec,
            sweep=sweep,
            secrets=secrets_in(request.POST, spec),
            project=project,
            user=cast(AbstractBaseUser, request.user),  # only members come this far
            idempotency_key=key or None,
            now=timezone.now(),
        )
    except SpecInvalid as error:
        return JsonResponse({"problems": _plain(error.problems, places)}, status=422)
    except KeyReused:
        text = _("This page has already launched another sweep. Reload it to launch one more; your draft is kept.")
        return JsonResponse({"problems": [{"field": "", "message": text}]}, status=422)
    return JsonResponse({"url": reverse("study", args=[study.pk])}, status=201)


def read_sweep(form: Mapping[str, str]) -> tuple[dict[str, object], list[int]]:
    """Return the sweep of the form's texts as `parse_plan` takes it, and the row of the form that each knob stands in.

    Rows that hold nothing are left out. Values are parted by spaces, commas or semicolons.
    """
    method = form.get("sweep.method", "grid")
    chosen: list[dict[str, object]] = []
    places: list[int] = []
    for place in range(MAX_KNOBS):
        texts = {name: form.get(f"sweep.knobs.{place}.{name}", "").strip() for name in ("id", "values", "low", "high")}
        if not any(texts.values()):
            continue
        knob: dict[str, object] = {"id": texts["id"]}
        if form.get(f"sweep.knobs.{place}.kind") == "range" and method == "random":
            scale = form.get(f"sweep.knobs.{place}.scale", "linear")
            knob |= {"low": texts["low"], "high": texts["high"], "scale": scale}
        elif texts["values"]:
            knob["values"] = texts["values"].replace(",", " ").replace(";", " ").split()
        chosen.append(knob)
        places.append(place)
    sweep: dict[str, object] = {"knobs": chosen, "method": method}
    for name in ("num_runs", "max_concurrent", "seed"):
        text = form.get(f"sweep.{name}", "").strip()
        if text:
            sweep[name] = text
    return sweep, places


def sweep_panel(plan: SweepPlan, points: Sequence[Point], specs: Sequence[RunSpec], state: ClusterState) -> SweepPanel:
    """Return what would be launched; at once means the most that so many runs of the sweep can ask together."""
    demands = [
        demand(spec, device=state.device if spec.hardware.device == "auto" else spec.hardware.device) for spec in specs
    ]
    at_once = min(plan.max_concurrent, plan.num_runs)
    cpus = sum(sorted((cpu for cpu, _gpu in demands), reverse=True)[:at_once])
    gpus = sum(sorted((gpu for _cpu, gpu in demands), reverse=True)[:at_once])
    is_too_much = state.is_reachable and (cpus > state.cpus_total or gpus > state.gpus_total)
    return SweepPanel(
        num_runs=plan.num_runs,
        at_once=at_once,
        cpus=cpus,
        gpus=gpus,
        is_too_much=is_too_much,
        cluster_cpus=state.cpus_total,
        cluster_gpus=state.gpus_total,
        heads=tuple(short_name(knob.id) for knob in plan.knobs),
        points=tuple(tuple(value_text(value) for value in point.values()) for point in points[:_SHOWN]),
        num_more=max(0, plan.num_runs - _SHOWN),
    )


def launch_label(plan: SweepPlan) -> str:
    """Return what the launch button says it will do."""
    at_once = min(plan.max_concurrent, plan.num_runs)
    text = ngettext("Launch %(n)s run, %(k)s at once", "Launch %(n)s runs, %(k)s at once", plan.num_runs)
    return text % {"n": plan.num_runs, "k": at_once}


def commands(base: RunSpec, sweep: Mapping[str, Any], *, project: str) -> dict[str, str]:
    """Return the commands that launch the same sweep; the token stays in the environment."""
    body = {"spec": minimal(base), "sweep": sweep}
    line = shlex.quote(json.dumps(body, ensure_ascii=False))
    target = shlex.quote(f"{settings.PUBLIC_URL.rstrip('/')}/api/studies?project={project}")
    words = ["python", "manage.py", "sweep", "-", "--project", project]
    for knob in sweep["knobs"]:
        if "values" in knob:
            words += ["--knob", f"{knob['id']}={','.join(knob['values'])}"]
        else:
            words += ["--knob", f"{knob['id']}={knob['low']}..{knob['high']}:{knob['scale']}"]
    options = {"seed": "--seed", "max_concurrent": "--at-once"}
    if sweep["method"] == "random":
        options = {"num_runs": "--random", **options}
    elif "num_runs" in sweep:
        options = {"num_runs": "--runs", **options}
    for name, option in options.items():
        if name in sweep:
            words += [option, sweep[name]]
    spec = shlex.quote(json.dumps(minimal(base), ensure_ascii=False))
    curl = (
        f'curl -X POST {target} -H "Authorization: Bearer $PITWALL_API_TOKEN" -H "Content-Type: application/json" '
        f"-d {line}"
    )
    return {
        "cli": f"echo {spec} | {shlex.join(words)}",
        "curl": curl,
        "spec": json.dumps(body, indent=2, ensure_ascii=False),
    }


def _spec(request: HttpRequest) -> RunSpec:
    base = base_of(request.POST.get("base", ""))
    return parse_spec(form_to_raw({name: str(text) for name, text in request.POST.items()}, base))


def _plain(problems: Sequence[Problem], places: Sequence[int]) -> list[dict[str, str]]:
    """Return the problems, each beside the row of the form that its knob stands in."""
    return [{"field": _in_form(problem.field, places), "message": in_words(problem.message, _)} for problem in problems]


def _in_form(field: str, places: Sequence[int]) -> str:
    parts = field.split(".")
    if parts[:2] == ["sweep", "knobs"] and len(parts) > 2 and parts[2].isdecimal() and int(parts[2]) < len(places):
        parts[2] = str(places[int(parts[2])])
    return ".".join(parts)


urlpatterns = [
    path("runs/new/sweep", check, name="new-run-sweep"),
    path("runs/new/sweep/launch", launch, name="new-run-sweep-launch"),
]
