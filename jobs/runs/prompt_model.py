"""Try a trained model on one prompt: a row, a short job when resources are free, and what it said."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from secrets import token_hex

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.algorithm import is_in
from jobs.catalog.value import is_storable
from jobs.cluster.ray_api import ClusterState
from jobs.models import UNDER_WAY, Answer, Artifact, Run
from jobs.runs import launch
from jobs.runs.short_jobs import JobKind, JobPlace

MAX_PROMPT_CHARS = 8000


class PromptRefused(ValueError):
    """This cannot be asked; `field` says what is wrong, `is_busy` that it may be asked later."""

    def __init__(self, field: str, message: str, *, is_busy: bool = False) -> None:
        self.field = field
        self.is_busy = is_busy
        super().__init__(message)


def ask(*, artifact: Artifact, prompt: str, user: AbstractBaseUser | None, now: datetime) -> Answer:
    """Queue a prompt for a trained model.

    Raises: PromptRefused if it is no ready model, or the prompt is empty, too long, or one is waiting already.
    """
    if artifact.type != "model":
        raise PromptRefused("artifact", _("%(name)s is not a model. Pick a model artifact.") % {"name": artifact.name})
    if is_in(artifact.run.spec.get("algorithm", "grpo"), "scalar"):
        text = _("%(name)s is a reward model: it scores responses and gives none. Ask the model of another run.")
        raise PromptRefused("artifact", text % {"name": artifact.name})
    if not artifact.is_ready:
        raise PromptRefused(
            "artifact", _("%(name)s is still being copied here. Try again soon.") % {"name": artifact.name}
        )
    if not prompt.strip():
        raise PromptRefused("prompt", _("The prompt is empty. Write what the model should respond to."))
    if not is_storable(prompt):
        raise PromptRefused("prompt", _("The prompt holds a character that cannot be stored. Type it again."))
    if len(prompt) > MAX_PROMPT_CHARS:
        values = {"given": f"{len(prompt):,}", "most": f"{MAX_PROMPT_CHARS:,}"}
        raise PromptRefused("prompt", _("The prompt has %(given)s characters. Use at most %(most)s.") % values)
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=artifact.run_id)
        if Answer.objects.filter(run_id=artifact.run_id, state__in=UNDER_WAY).exists():
            text = _("An earlier prompt of this run is still being answered. Wait for it.")
            raise PromptRefused("prompt", text, is_busy=True)
        answer = Answer.objects.create(
            run_id=artifact.run_id,
            artifact=artifact,
            prompt=prompt,
            submission_id=f"answer-{artifact.run_id}-{token_hex(4)}",
            created_by_id=user.pk if user else None,
            created_at=now,
        )
        after = {"artifact": artifact.name, "answer": answer.pk}
        record(actor=user, verb="run.try", object_type="run", object_id=artifact.run_id, after=after)
    return answer


def settle(*, answer_id: int, run_id: str, text: str, token_ids: Sequence[int], problem: str, now: datetime) -> bool:
    """Keep what the model said, or why it could not; the first word holds, later ones return False."""
    if not Answer.objects.filter(pk=answer_id, run_id=run_id).exists():
        return False
    state = "failed" if problem else "finished"
    return ANSWERS.settle(answer_id, state=state, problem=problem, text=text, token_ids=list(token_ids), now=now)


class _Answers(JobKind[Answer]):
    model = Answer
    module = "jobs.runner.prompt_model"
    patience = timedelta(minutes=5)

    def place(self, job: Answer, state: ClusterState) -> JobPlace:  # noqa: ARG002
        return JobPlace(gpus=1.0 if state.device == "cuda" else 0.0)

    def environment(self, job: Answer, state: ClusterState) -> Mapping[str, str]:
        attempt = job.artifact.attempt
        return {
            "PITWALL_URL": settings.RUNNER_URL,
            "PITWALL_TOKEN": launch.ingest_token(job.run_id, attempt),
            "PITWALL_RUN": job.run_id,
            "PITWALL_ATTEMPT": str(attempt),
            "PITWALL_ANSWER": str(job.pk),
            "PITWALL_ARTIFACT": job.artifact.name,
            "PITWALL_PROMPT": job.prompt,
            "PITWALL_RUN_ROOT": str(settings.RUN_ROOT),
            "PITWALL_DEVICE": state.device,
        }

    def metadata(self, job: Answer) -> Mapping[str, str]:
        return {"pitwall_run": job.run_id, "pitwall_answer": str(job.pk)}

    def why_late(self, job: Answer) -> str:
        if job.state == "queued":
            return _("No resources became free on the cluster within five minutes. Try again when fewer runs are live.")
        return _("The model gave no response within five minutes. Try a shorter prompt, or look at Ray's job log.")

    def why_dead(self, why: str) -> str:
        return _("The job that generates the response ended: %(why)s") % {"why": why}


ANSWERS = _Answers()
"""The prompts that people try."""
