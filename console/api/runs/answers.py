"""Try a trained model on a prompt."""

from datetime import datetime

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, run_for
from jobs.models import Answer
from jobs.processes import tasks
from jobs.runs.prompt_model import PromptRefused, ask

router = Router(tags=["runs"])

_SHOWN = 50


class PromptIn(Schema):
    """What to ask, of which model artifact of the run."""

    model_config = {"extra": "forbid"}

    artifact_id: int = Field(ge=1, le=2**62)
    prompt: str


class AnswerOut(Schema):
    """A prompt and what came of it; `state` is queued, starting, finished or failed."""

    id: int
    artifact_id: int
    prompt: str
    state: str
    text: str
    token_ids: list[int]
    problem: str
    author: str
    created_at: datetime
    ended_at: datetime | None


class AnswersOut(Schema):
    """The newest answers first."""

    answers: list[AnswerOut]


@router.post("/{run_id}/answers", response={201: AnswerOut, **REFUSALS}, summary="Try the model on a prompt")
def ask_model(request: HttpRequest, run_id: str, body: PromptIn) -> Status[AnswerOut]:
    """Queue a prompt; it is answered by a short job when the cluster has free resources. Follow it with GET."""
    run = run_for(request, run_id, "editor")
    artifact = run.artifacts.filter(pk=body.artifact_id).first()
    if artifact is None:
        raise RequestProblem(404, f"This run has no artifact {body.artifact_id}.", field="artifact_id")
    try:
        answer = ask(artifact=artifact, prompt=body.prompt, user=caller(request), now=timezone.now())
    except PromptRefused as error:
        raise RequestProblem(409 if error.is_busy else 422, str(error), field=error.field) from error
    tasks.enqueue(tasks.try_model, answer_id=answer.pk)
    answer.refresh_from_db()
    return Status(201, _answer(answer))


@router.get("/{run_id}/answers", response={200: AnswersOut, **REFUSALS}, summary="Prompts tried")
def list_answers(request: HttpRequest, run_id: str) -> AnswersOut:
    """Return the newest 50 prompts tried on this run's models."""
    run = run_for(request, run_id)
    rows = Answer.objects.filter(run=run).select_related("created_by").order_by("-pk")[:_SHOWN]
    return AnswersOut(answers=[_answer(row) for row in rows])


@router.get("/{run_id}/answers/{int:answer_id}", response={200: AnswerOut, **REFUSALS}, summary="One answer")
def read_answer(request: HttpRequest, run_id: str, answer_id: int) -> AnswerOut:
    """Return one prompt and its answer."""
    run = run_for(request, run_id)
    row = (
        Answer.objects.filter(run=run, pk=answer_id).select_related("created_by").first() if answer_id < 2**62 else None
    )
    if row is None:
        raise Http404
    return _answer(row)


def _answer(row: Answer) -> AnswerOut:
    return AnswerOut(
        id=row.pk,
        artifact_id=row.artifact_id,
        prompt=row.prompt,
        state=row.state,
        text=row.text,
        token_ids=row.token_ids,
        problem=row.problem,
        author=row.created_by.get_username() if row.created_by else "",
        created_at=row.created_at,
        ended_at=row.ended_at,
    )
