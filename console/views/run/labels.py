"""What a list says of a run in a few words: why it waits, what it does, why it failed."""

import re
from datetime import datetime

from django.utils.translation import gettext as _

from console.labels.catalog import knob_label, phase_label
from console.labels.numbers import duration, interval
from jobs.accounts.access import User
from jobs.accounts.privilege import check_privileged
from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.metric import metric
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.models import Project
from jobs.runs.header import RunHeader
from profiling.phases import BY_KEY, STEP_PHASES


def cause_text(header: RunHeader) -> str:
    """Return a failure's cause with its place: "Out of memory: policy 1, step 143"."""
    cause = header.cause
    text = str(cause.get("text") or "").rstrip(".。")
    stored = str(cause.get("stored_text") or text)  # in English, as it names places
    if text and cause.get("side") == "user":
        return text  # whoever stopped it needs no process named
    place = []
    if cause.get("role") and str(cause["role"]) not in stored:
        rank = cause.get("rank")
        place.append(f"{cause['role']} {rank}" if rank is not None else str(cause["role"]))
    if cause.get("step") and not re.search(rf"\bstep {cause['step']}\b", stored):
        place.append(_("step %(step)s") % {"step": cause["step"]})
    if not text:
        return ", ".join(place)
    return f"{text}: {', '.join(place)}" if place else text


def timed_phases(spec: RunSpec) -> tuple[str, ...]:
    """Return the phases of a step whose seconds the run's trainer reports, by key."""
    if spec.is_native:
        return STEP_PHASES
    if not is_in(spec.algorithm, "rl"):
        return ()
    return tuple(key for key in STEP_PHASES if metric(f"time/{key}_seconds").names.get(spec.trainer.name))


def phase_note(spec: RunSpec) -> str:
    """Return what another trainer tells of the phases of its steps, and how the timeline comes of it.

    "" for the built-in trainer, which reports all of them as they happen.
    """
    if spec.is_native:
        return ""
    reported = [phase_label(key) for key in timed_phases(spec)]
    if not reported:
        return (
            untold(spec, "phases")
            if is_in(spec.algorithm, "rl")
            else _("%(trainer)s does not report the phases of these steps, only how long each step takes.")
            % {"trainer": _called(spec)}
        )
    return f"{untold(spec, 'phases')} {_('Phases: %(phases)s.') % {'phases': ', '.join(reported)}}"


def engine_note(spec: RunSpec) -> str:
    """Return why another trainer's run shows nothing of its rollout engines, "" where it does, or has none."""
    is_known = spec.is_native or spec.values().get("logging.engine_stats") or not is_in(spec.algorithm, "rl")
    return "" if is_known else untold(spec, "engine")


def process_note(spec: RunSpec) -> str:
    """Return which processes of another trainer are listed with their memory; "" for the built-in trainer."""
    if spec.is_native:
        return ""
    return _(
        "Processes: those of %(trainer)s on the runner's node, from when its process group is up. Memory of a process "
        "is what is resident, shared pages included."
    ) % {"trainer": _called(spec)}


def untold(spec: RunSpec, subject: str) -> str:
    """Return what the run's trainer does not tell of a subject (jobs.catalog.trainer.UNTOLD), "" where it tells all."""
    text = trainers()[spec.trainer.name].untold.get(subject, "")
    return _(text).replace("{trainer}", _called(spec)) if text else ""


def _called(spec: RunSpec) -> str:
    """Return a trainer as people call it: its label and the version of the run."""
    return f"{trainers()[spec.trainer.name].label} {spec.trainer.version}".rstrip()


def sample_note(spec: RunSpec) -> str:
    """Return why a run has no samples to show; "" where it draws some and they are shipped."""
    if not is_in(spec.algorithm, "rl"):
        words = {"algorithm": _(algorithms()[spec.algorithm].label)}
        if spec.is_native and is_in(spec.algorithm, "pairs"):
            return _("%(algorithm)s draws no samples. Held-out pairs are listed under Samples.") % words
        if spec.is_native and is_in(spec.algorithm, "labeled"):
            return _("%(algorithm)s draws no samples. Held-out responses are listed under Samples.") % words
        return _("%(algorithm)s learns from the responses in the data; it draws no samples.") % words
    info = trainers()[spec.trainer.name]
    if spec.is_native:
        return ""
    words = {"trainer": _called(spec)}
    if not info.leaves_samples(spec.algorithm, spec.trainer.version):
        return _("%(trainer)s does not write its samples to a file that Pitwall reads.") % words
    if info.samples_with and not spec.values().get(info.samples_with):
        words["knob"] = knob_label(info.samples_with)
        return _("%(trainer)s writes its samples only with “%(knob)s” on, which this run has off.") % words
    return ""


def resume_note(spec: RunSpec) -> str:
    """Return why a run begins at the start again whatever it has saved; "" where it goes on from checkpoints."""
    if spec.is_native or not spec.values().get("checkpoint.weights_only"):
        return ""
    return _("With “%(knob)s” on, its checkpoints hold weights alone: a new attempt begins at the start.") % {
        "knob": knob_label("checkpoint.weights_only")
    }


def resume_refusal(spec: RunSpec, project: Project, user: User) -> str:
    """Return why this person may not start the run again; "" if they may."""
    return " ".join(problem.message for problem in check_privileged(spec, project, user))


def hint(header: RunHeader, *, now: datetime) -> str:
    """Return what stands beside the state: the reason of waiting, the phase and time left, or the cause."""
    if header.state == "queued":
        if header.wait_reason:
            return header.wait_reason
        return _("Place %(place)s in the queue") % {"place": header.queue_position or "?"}
    if header.state == "starting":
        return header.activity or _("Placing its workers")
    if header.is_lost_contact and header.last_contact_at:
        silent = (now - datetime.fromisoformat(header.last_contact_at)).total_seconds()
        return _("No heartbeat for %(time)s") % {"time": duration(silent)}
    if header.state == "running":
        doing = phase_label(header.phase) if header.phase in BY_KEY else header.activity
        left = _("%(time)s left") % {"time": interval(header.eta_seconds)} if header.eta_seconds else ""
        return ", ".join(part for part in (doing, left) if part)
    if header.state == "stopping":
        return header.activity or _("Saving a checkpoint")
    if header.state in ("failed", "stopped"):
        return cause_text(header)
    return ""
