"""The card below the Timeline that holds a run against its plan, line by line, with a sentence on top."""

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.labels.calibration import joining_text
from console.views.new_run.plan import accelerator_choices
from console.views.plan.panel import devices_text
from console.views.run.files import visible_run
from console.views.run.plan_labels import line, summary
from jobs.accounts.access import allows
from jobs.cluster.ray_api import cluster_state
from jobs.models import Run
from jobs.planning.joining import joining_of
from jobs.planning.policy_model import PlanRefused
from jobs.planning.question import what_if_of
from jobs.planning.run_plan import run_plan

_MOST_PER_NODE = 8


@require_GET
@expensive
def plan_card(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show the plan of the run beside what it measured by now; why there is none, where there is none."""
    run, role = visible_run(request, run_id)
    texts = {name: request.GET.get(name, "") for name in ("accelerator", "nodes", "devices_per_node")}
    context = {
        "run": run,
        "chosen": texts["accelerator"],
        "accelerators": accelerator_choices(),
        "devices": _devices(run),
        "plan_url": _new_run(run, texts) if allows(role, "editor") else "",
    }
    try:
        what_if = what_if_of(texts)
        plan = run_plan(run, user=request.user, state=cluster_state(), what_if=what_if)
    except PlanRefused as refused:
        is_hardware = refused.field.startswith("what_if")
        return render(request, "run/plan.html", {**context, "refusal": str(refused), "is_hardware": is_hardware})
    host = plan.fleet.accelerator.is_host
    context |= {
        "is_hardware": what_if is not None,
        "is_as_it_ran": plan.is_as_it_ran,
        "hardware": _("the CPU") if host else devices_text(plan.fleet, plan.fleet.num_devices),
        "says": summary(plan),
        "num_steps": plan.measured.num_steps,
        "seconds": [line(row, plan) for row in plan.rows if row.quantity == "seconds"],
        "peaks": [line(row, plan) for row in plan.rows if row.quantity == "bytes" and not row.term],
        "states": [line(row, plan) for row in plan.rows if row.term],
        "notes": plan.notes,
        "joined": "" if (joining := joining_of(run)) is None else joining_text(joining),
    }
    return render(request, "run/plan.html", context)


def _devices(run: Run) -> dict[str, int]:
    """Return the nodes that the run's GPUs fill, to assume as many of another kind."""
    attempt = run.attempts.filter(number=run.latest_attempt).first()
    wanted = max(1, int(attempt.num_gpus if attempt is not None else 0))
    per_node = min(wanted, _MOST_PER_NODE)
    return {"nodes": -(-wanted // per_node), "devices_per_node": per_node}


def _new_run(run: Run, texts: dict[str, str]) -> str:
    """Return the address of New run with this run's spec, planned for the same hardware."""
    hypothetical = [(name, text) for name, text in texts.items() if text and texts["accelerator"]]
    return f"{reverse('new-run')}?{urlencode([('from', run.pk), *hypothetical])}"


urlpatterns: list[URLPattern] = [
    path("runs/<run_id:run_id>/plan", plan_card, name="run-plan"),
]
