"""Can it run? A language model, hardware and a method in; yes, no or unknown out, on each hardware side by side."""

from django.http import HttpRequest
from ninja import Router

from console.api.planner.can_it_run_answer import CanItRunIn, CanItRunOut, answered
from console.api.problem import EXPENSIVE
from console.api.visible import caller, project_for
from console.budget import expensive
from jobs.accounts.access import allows, role
from jobs.planning.search_pool import answer_apart

router = Router(tags=["planner"])


@router.post("/{slug:project}/plan/can-it-run", response={200: CanItRunOut, **EXPENSIVE}, summary="Can it run?")
@expensive
def can_it_run(request: HttpRequest, project: str, body: CanItRunIn) -> CanItRunOut:
    """Say whether a model can be trained by a method, on how few devices, what binds and how long a step takes.

    It needs no cluster and no trainer; of the project it takes prices and constants. Nothing is queued.
    """
    home = project_for(request, project)
    return answered(body, home, may_read=allows(role(caller(request), home), "editor"), ask=answer_apart)
