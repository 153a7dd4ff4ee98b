"""What a run that died of memory is held against: its plan, and the smallest change that fits."""

from typing import Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import EXPENSIVE, RequestProblem
from console.api.visible import caller, run_for
from console.budget import expensive
from console.labels.post_mortem import change_sentence, post_mortem_sentences
from jobs.catalog.value import Value
from jobs.cluster.ray_api import cluster_state
from jobs.planning.policy_model import PlanRefused
from jobs.planning.post_mortem import KnownBy, post_mortem

router = Router(tags=["runs", "planner"])


class PostMortemOut(Schema):
    """Bytes of the place where it died: of the device, of the process on the CPU, or of the node."""

    memory: Literal["device", "host"]
    role: str
    rank: int
    phase: str
    term: str = Field(description='What was too large: a term of memory, or "host"')
    known_by: KnownBy = Field(description="By what the term is known")
    terms: dict[str, int] = Field(description="The plan of the role in that phase, by term")
    planned: int
    demanded: int | None = Field(description="With the last allocation; null where that is not told")
    limit: int | None
    wanted: int | None = Field(description="The last allocation")
    changes: dict[str, Value] = Field(description="The smallest change of knobs that fits, {} where none does")
    change: str
    says: list[str]


class RunPostMortem(Schema):
    """`post_mortem` is null for a run that did not die of memory."""

    post_mortem: PostMortemOut | None


@router.get("/{run_id}/post-mortem", response={200: RunPostMortem, **EXPENSIVE}, summary="What memory it died of")
@expensive
def read_post_mortem(request: HttpRequest, run_id: str) -> RunPostMortem:
    """Hold a run that died of memory against its plan; 422 where there is no plan, with the reason."""
    run = run_for(request, run_id)
    try:
        report = post_mortem(run, user=caller(request), state=cluster_state())
    except PlanRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    if report is None:
        return RunPostMortem(post_mortem=None)
    made = PostMortemOut(
        memory=report.failure.memory,
        role=report.role,
        rank=report.failure.rank,
        phase=report.phase,
        term=report.term,
        known_by=report.known_by,
        terms={str(term): size for term, size in report.terms.items()},
        planned=report.planned,
        demanded=report.demanded,
        limit=report.limit,
        wanted=report.failure.wanted,
        changes=dict(report.remedy.changes) if report.remedy else {},
        change=change_sentence(report),
        says=post_mortem_sentences(report),
    )
    return RunPostMortem(post_mortem=made)
