"""Read a RunSpec as a Job: what each of its knobs does to memory and time."""

from dataclasses import replace

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.hardware_notes import LONG_ROW, long_row
from jobs.planner.job import Fleet, Job
from jobs.planner.read.context import Models, RunContext, Workload, samples_per_update
from jobs.planner.trainer import planning_of


def read_job(spec: RunSpec, models: Models, fleet: Fleet, *, workload: Workload | None = None) -> Job:
    """Return what the planner uses for a run of these models on devices of `fleet`'s kind.

    The devices are those that the run asks for, not those that the fleet has. A model that is not given is taken to
    have the shape that the trainer would give it: a critic that of the policy or the reward model, a
    reference, reward model or teacher that of the policy; `notes` says so for a reward model and a teacher.
    `workload` says what is known of the data; without it lengths are the caps.
    """
    return read_models(spec, models, fleet, workload or Workload(), samples=samples_per_update(spec))


def read_models(spec: RunSpec, models: Models, fleet: Fleet, workload: Workload, *, samples: int) -> Job:
    """Return the job of a run whose models and samples per update are known already, as a search knows them."""
    source = RunContext(spec, models, fleet, workload, samples)
    job = planning_of(spec).job(source)
    return replace(
        job,
        fleet=replace(fleet, num_devices=source.num_workers()),
        num_steps=spec.num_steps or source.num_steps(),
        checkpoint_every=source.knobs.whole("checkpoint.every_steps"),
        unpriced=source.knobs.unpriced(),
        notes=(*job.notes, *source.notes(has_rollouts=is_in(spec.algorithm, "rl")), *_of_rows(job, workload)),
    )


def _of_rows(job: Job, workload: Workload) -> tuple[str, ...]:
    """Return a note for rows so long that the lengths of their documents, which nobody said, decide the time."""
    is_unknown = not workload.mean_sample and job.policy.sequence > LONG_ROW
    return (long_row(job.policy.sequence),) if is_unknown else ()
