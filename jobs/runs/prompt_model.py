"""Try a trained model on one prompt: a row, a short job when resources are free, and what it said."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.algorithm import is_in
from jobs.catalog.value import is_storable
from jobs.cluster import ray_api as cluster
from jobs.cluster.ray_api import JOB_ENDED, ClusterState, ClusterUnreachable, JobInfo, JobRefused
from jobs.models import Answer, Artifact, Run
from jobs.runs import admission, launch
from jobs.runs.exit_cause import exit_cause_of
from jobs.telemetry.notify import run_changed

MAX_PROMPT_CHARS = 8000
WAIT_LIMIT = timedelta(minutes=5)  # from asking to the end, waiting for resources included
_WAITING = ("queued", "starting")


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
        if Answer.objects.filter(run_id=artifact.run_id, state__in=_WAITING).exists():
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


def submit_answer(*, answer_id: int, now: datetime) -> None:
    """Start the job that answers, if resources are free now; else it stays queued and jobs.processes.reconcile tries
    again.
    """
    state = cluster.read_state()
    if state.is_reachable:
        _start(Answer.objects.select_related("artifact").get(pk=answer_id), state, now)


def settle(*, answer_id: int, run_id: str, text: str, token_ids: Sequence[int], problem: str, now: datetime) -> bool:
    """Keep what the model said, or why it could not; the first word holds, later ones return False."""
    waiting = Answer.objects.filter(pk=answer_id, run_id=run_id, state__in=_WAITING)
    with transaction.atomic():
        done = waiting.update(
            state="failed" if problem else "finished",
            text=text,
            token_ids=list(token_ids),
            problem=problem[:500],
            ended_at=now,
        )
        if done:
            transaction.on_commit(partial(run_changed, run_id))
    return bool(done)


def reconcile_answers(*, jobs: Mapping[str, JobInfo], state: ClusterState, now: datetime) -> None:
    """Start what waits and can start, and settle what died or took too long."""
    give_up_late(now=now)
    for answer in Answer.objects.filter(state="starting").select_related("artifact"):
        job = jobs.get(answer.submission_id)
        if job is None:
            _submit(answer, state, now)  # whoever claimed it died before Ray had it; if not, Ray knows the name
        elif job.status in JOB_ENDED:
            # Its own word is posted before it exits; without one here it will not come.
            cause = exit_cause_of(job)
            reason = f"{cause['text']}. {cause['log_line']}".strip()
            problem = _("The job that generates the response ended: %(why)s") % {"why": reason}
            settle(answer_id=answer.pk, run_id=answer.run_id, text="", token_ids=[], problem=problem, now=now)
    for answer in Answer.objects.filter(state="queued").select_related("artifact").order_by("pk"):
        _start(answer, state, now)


def give_up_late(*, now: datetime) -> None:
    """Settle what has waited for five minutes, with a sentence that says for what."""
    for answer in Answer.objects.filter(state__in=_WAITING, created_at__lt=now - WAIT_LIMIT):
        if answer.state == "queued":
            problem = _(
                "No resources became free on the cluster within five minutes. Try again when fewer runs are live."
            )
        else:
            problem = _(
                "The model gave no response within five minutes. Try a shorter prompt, or look at Ray's job log."
            )
        settle(answer_id=answer.pk, run_id=answer.run_id, text="", token_ids=[], problem=problem, now=now)


def _start(answer: Answer, state: ClusterState, now: datetime) -> None:
    if admission.why_answer_waits(state, now=now):
        return
    if Answer.objects.filter(pk=answer.pk, state="queued").update(state="starting"):
        _submit(answer, state, now)


def _submit(answer: Answer, state: ClusterState, now: datetime) -> None:
    try:
        cluster.submit_job(
            submission_id=answer.submission_id,
            module="jobs.runner.prompt_model",
            environment=_environment(answer, state),
            metadata={"pitwall_run": answer.run_id, "pitwall_answer": str(answer.pk)},
            entrypoint_gpus=1 if state.device == "cuda" else 0,
        )
    except ClusterUnreachable:
        # Ray may or may not have it: the same name is submitted again, which Ray takes for the same job.
        Answer.objects.filter(pk=answer.pk, state="starting").update(state="queued")
    except JobRefused as error:
        settle(answer_id=answer.pk, run_id=answer.run_id, text="", token_ids=[], problem=str(error), now=now)


def _environment(answer: Answer, state: ClusterState) -> dict[str, str]:
    attempt = answer.artifact.attempt
    return {
        "PITWALL_URL": settings.RUNNER_URL,
        "PITWALL_TOKEN": launch.ingest_token(answer.run_id, attempt),
        "PITWALL_RUN": answer.run_id,
        "PITWALL_ATTEMPT": str(attempt),
        "PITWALL_ANSWER": str(answer.pk),
        "PITWALL_ARTIFACT": answer.artifact.name,
        "PITWALL_PROMPT": answer.prompt,
        "PITWALL_RUN_ROOT": str(settings.RUN_ROOT),
        "PITWALL_DEVICE": state.device,
    }
