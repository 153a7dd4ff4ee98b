"""Create runs and put them on the cluster. Repeating any step here does no harm: that is how lost steps are healed."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils.crypto import constant_time_compare, salted_hmac

from jobs.accounts.audit import record
from jobs.accounts.privilege import require_privilege
from jobs.captures import captures
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.trainer import BUILT_IN, trainers
from jobs.catalog.trainer_environment import VARIABLE, environment_of, read_environments
from jobs.cluster import nodes as ran_on
from jobs.cluster import ray_api as cluster
from jobs.models import Attempt, Project, Run, RunEvent, new_run_id
from jobs.runs import admission, lifecycle
from jobs.runs.environment import keep_secrets, require_secrets
from jobs.runs.hub_token import hub_environment
from jobs.telemetry.notify import run_changed

DEMO_NAME = "Demo: GRPO on word problems"
MAX_KEY_LENGTH = 80

log = logging.getLogger(__name__)


class KeyReused(ValueError):
    """The idempotency key was used before for a different spec."""


def create_run(
    *,
    project: Project,
    spec: RunSpec | Mapping[str, Any],
    user: AbstractBaseUser | None,
    idempotency_key: str | None,
    now: datetime,
    tags: Sequence[str] = (),
    secrets: Mapping[str, str] | None = None,
    parent: Run | None = None,
) -> tuple[Run, bool]:
    """Queue a run and return it with True; with False if the key made it before (double click, retried POST).

    `secrets` are the values of those that the spec names and the project does not keep; `parent` is the run of the
    project that it is a clone of.
    Raises: SpecInvalid with every problem of the spec, or with all of it that `user` may not start; KeyReused if the
    key stands for another spec.
    """
    checked = parse_spec(to_json(spec) if isinstance(spec, RunSpec) else spec)
    key = _key(idempotency_key)
    earlier = _earlier(project, key, checked)
    if earlier is not None:
        return earlier, False
    require_privilege(checked, project, user)
    require_secrets(checked, project, secrets or {})
    try:
        with transaction.atomic():
            run = _insert(project, checked, user, key, now, tags, parent)
            keep_secrets(run, secrets or {}, user=user, now=now)
            return run, True
    except IntegrityError:
        earlier = _earlier(project, key, checked)
        if earlier is None:
            raise
        return earlier, False


def parent_of(project: Project, run_id: str) -> Run | None:
    """Return the run of the project that a clone names; None for another project's, or for one that is not there."""
    return Run.objects.filter(project=project, pk=run_id).first() if run_id else None


def launched_before(*, project: Project, idempotency_key: str | None) -> bool:
    """Return True if the key has made a run here already, so that nothing need be checked again."""
    key = _key(idempotency_key)
    return key is not None and Run.objects.filter(project=project, idempotency_key=key).exists()


def submit(*, run_id: str, now: datetime) -> None:
    """Let the queue move, then hand the run to Ray if it was admitted and Ray does not have it yet.

    Does nothing while Ray cannot be reached: jobs.processes.reconcile tries again each second.
    """
    state = cluster.read_state()
    if not state.is_reachable:
        return
    admission.admit_waiting(state=state, now=now)
    for attempt in Attempt.objects.filter(run_id=run_id, state="starting", submitted_at=None):
        hand_over(attempt, state=state, now=now)


def hand_over(attempt: Attempt, *, state: cluster.ClusterState, now: datetime) -> bool:
    """Give the attempt's job to Ray; True if Ray has it. Twice does no harm, Ray knows its name.

    `state`: the cluster as it is now, which is kept with the attempt. A job that Ray will never take ends the attempt
    as failed.
    """
    ran_on.keep_cluster(attempt, state)
    try:
        cluster.submit_job(
            submission_id=attempt.submission_id,
            module="jobs.runner",
            environment=environment(attempt) | hub_environment(attempt.run.spec),
            metadata={"pitwall_run": attempt.run_id, "pitwall_attempt": str(attempt.number)},
            entrypoint_gpus=_gpus_of_the_runner(attempt),
            runtime=runtime_of(attempt),
        )
    except cluster.ClusterUnreachable as error:
        log.warning("%s is not submitted yet: %s", attempt.submission_id, error)
        return False
    except cluster.JobRefused as error:
        cause = {"side": "cluster", "text": str(error)}
        lifecycle.finish(
            run_id=attempt.run_id, attempt=attempt.number, state="failed", cause=cause, cleanup={}, now=now
        )
        return False
    Attempt.objects.filter(pk=attempt.pk, submitted_at=None).update(submitted_at=now)
    return True


def clean_up(attempt: Attempt) -> None:
    """Start the job that ends what is left of an attempt whose runner died, and sends the clean-up report.

    Raises: ClusterUnreachable, JobRefused.
    """
    cluster.submit_job(
        submission_id=cleanup_id(attempt.submission_id),
        module="jobs.runner.cleanup",
        environment=environment(attempt),
        metadata={"pitwall_run": attempt.run_id, "pitwall_attempt": str(attempt.number)},
    )


def environment(attempt: Attempt) -> dict[str, str]:
    """Return what a job of the attempt finds in its environment: where to report, as whom, and on which device."""
    return {
        "PITWALL_URL": settings.RUNNER_URL,
        "PITWALL_TOKEN": ingest_token(attempt.run_id, attempt.number),
        "PITWALL_RUN": attempt.run_id,
        "PITWALL_ATTEMPT": str(attempt.number),
        "PITWALL_RUN_ROOT": str(settings.RUN_ROOT),
        "PITWALL_DEVICE": "cuda" if attempt.num_gpus else "cpu",
        **({VARIABLE: settings.TRAINERS} if settings.TRAINERS else {}),
    }


def runtime_of(attempt: Attempt) -> dict[str, str]:
    """Return what Ray has to know of the environment where another trainer is declared.

    A container image holds the whole job. Ray workers run the interpreter that has the trainer, where it has any.
    """
    trainer = attempt.run.spec.get("trainer", {})
    environment = environment_of(
        trainer.get("name", ""), trainer.get("version", ""), read_environments(settings.TRAINERS)
    )
    if environment is None or environment.kind == "installed":
        return {}
    if environment.kind == "image":
        return {"image_uri": environment.at}
    return {"py_executable": environment.at} if _uses_ray(attempt.run.spec) else {}


def _gpus_of_the_runner(attempt: Attempt) -> float:
    """Return the GPUs that Ray holds for the runner: those of a trainer that is its child and asks Ray for none."""
    return 0 if _uses_ray(attempt.run.spec) else attempt.num_gpus


def _uses_ray(spec: Mapping[str, Any]) -> bool:
    name = spec.get("trainer", {}).get("name", BUILT_IN)
    return trainers()[name].uses_ray(spec["algorithm"])


def ingest_token(run_id: str, attempt: int) -> str:
    """Return the token with which the runner of this attempt, and nobody else, may report."""
    return salted_hmac("pitwall.ingest", f"{run_id}/{attempt}", algorithm="sha256").hexdigest()


def check_ingest_token(run_id: str, attempt: int, token: str) -> bool:
    """Return True if `token` belongs to this run and attempt."""
    return constant_time_compare(ingest_token(run_id, attempt), token)


def submission_id(run_id: str, attempt: int) -> str:
    """Return the name of the attempt's Ray job, known before Ray is called."""
    return f"run-{run_id}-a{attempt}"


def cleanup_id(submission: str) -> str:
    """Return the name of the clean-up job of an attempt's job."""
    return f"{submission}-cleanup"


def _key(key: str | None) -> str | None:
    """Return the key as it is kept; PostgreSQL takes no NUL."""
    return (key or "").replace("\0", "")[:MAX_KEY_LENGTH] or None


def _earlier(project: Project, key: str | None, spec: RunSpec) -> Run | None:
    if key is None:
        return None
    run = Run.objects.filter(project=project, idempotency_key=key).first()
    if run is not None and {**run.spec, "name": ""} != {**to_json(spec), "name": ""}:
        raise KeyReused(f"The idempotency key {key!r} already made run {run.pk} from another spec. Use a new key.")
    return run


def _insert(
    project: Project,
    spec: RunSpec,
    user: AbstractBaseUser | None,
    key: str | None,
    now: datetime,
    tags: Sequence[str],
    parent: Run | None,
) -> Run:
    author = user.pk if user else None
    run_id = new_run_id()
    run = Run.objects.create(
        id=run_id,
        project=project,
        name=spec.name or default_name(spec),
        spec=to_json(spec),
        idempotency_key=key,
        num_steps=spec.num_steps,
        tags=list(tags),
        parent=parent,
        color=Run.objects.filter(project=project).count() % 20,
        created_by_id=author,
        created_at=now,
    )
    cpus, gpus = admission.demand(spec, device="cpu" if spec.hardware.device == "auto" else spec.hardware.device)
    attempt = Attempt.objects.create(
        run=run,
        submission_id=submission_id(run_id, 1),
        num_cpus=cpus,
        num_gpus=gpus,
        created_by_id=author,
        created_at=now,
    )
    captures.arm_at_launch(attempt=attempt, spec=spec, now=now)
    RunEvent.objects.create(run=run, at=now, verb="queued", text="Queued", actor_id=author, data={"to": "queued"})
    record(
        actor=user,
        verb="run.create",
        object_type="run",
        object_id=run_id,
        project=project,
        label=run.name,
        after={"name": run.name},
    )
    transaction.on_commit(partial(run_changed, run_id))
    return run


def default_name(spec: RunSpec) -> str:
    """Return what a run without a name is called: algorithm and the last part of its model and data."""
    short = [part.rstrip("/").rpartition("/")[2] for part in (spec.model.id, spec.data.id)]
    data = "upload" if spec.data.kind == "upload" else short[1]
    return f"{spec.algorithm.upper()} {short[0]} on {data}"[:120]


def demo_spec(knobs: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the raw spec of the demo, GRPO on the bundled tiny model and word problems, with these knobs changed."""
    return {"name": DEMO_NAME, "algorithm": "grpo", "knobs": dict(knobs or {})}
