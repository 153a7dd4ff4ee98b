"""What is checked before a run is queued, once for form, API and command line.

`parse_spec` has already refused what is wrong in itself; here the spec meets the world: its data, model and reward are
tried in a process of their own, and its demand is held against the cluster. What cannot be seen from the console (a
path on a cluster elsewhere) is "unknown", never "passed".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Literal

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.accounts.access import User
from jobs.accounts.privilege import check_privileged
from jobs.adapters.adapter import adapter
from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.knob import KnobValueInvalid, applicable
from jobs.catalog.rules.rule import changed, refused
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.parse import Problem, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.catalog.trainer_environment import environment_of, how_to_make, read_environments
from jobs.catalog.value import Value
from jobs.cluster.ray_api import ClusterState, cluster_state, is_local
from jobs.models import Project
from jobs.planner.search.layouts import breach
from jobs.preflight.client import PathNotAllowed, TrialFailed, TrialHindered, TrialUnavailable
from jobs.preflight.preview import DataPreview, ModelFacts, describe_model, preview_data, try_algorithm, try_reward
from jobs.preflight.trial_switch import holds_code
from jobs.runs.admission import AdmissionDecision, Ask, decide, demand, holders, waiting
from jobs.runs.environment import check_secrets, split_secrets
from jobs.runs.holds import Hold, QuotaHolds
from profiling.counted import counted

CheckState = Literal["passed", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked: what came of it, in a sentence, beside which field of the spec.

    Each of `fixes` is one change that would mend it: values by knob id or dotted field.
    """

    state: CheckState
    text: str
    field: str
    fixes: tuple[Mapping[str, Value], ...] = dataclass_field(default=(), hash=False)


def check_launchable(
    spec: RunSpec, project: Project, user: User | None = None, *, secrets: Mapping[str, object] | None = None
) -> list[Problem]:
    """Return why this spec cannot be launched here, now and by this person; empty if nothing stands against it.

    Without a person, nothing is allowed that needs an admin. `secrets` are the values that are given with the launch.
    """
    problems = [
        *check_privileged(spec, project, user),
        *check_secrets(spec, project, secrets or {}),
        *refused(on_cluster(spec, cluster_state()), say=_),
    ]
    if problems:
        return problems  # nothing of it is tried then
    return [
        Problem(field=c.field, message=c.text)
        for c in run_checks(spec, project=project, user=user)
        if c.state == "failed"
    ]


def on_cluster(spec: RunSpec, state: ClusterState) -> RunSpec:
    """Return the spec with the device that the run would get, which rules go by: what "auto" means on this cluster.

    While the cluster does not answer it stays open.
    """
    if spec.hardware.device != "auto" or not state.is_reachable:
        return spec
    return spec.model_copy(update={"hardware": spec.hardware.model_copy(update={"device": state.device})})


def default_device(state: ClusterState) -> str:
    """Return the device of a new run that names none: a cluster's GPUs, whose defaults are others than the CPUs'."""
    return "cuda" if state.is_reachable and state.device == "cuda" else "auto"


def parse_for_cluster(raw: object) -> RunSpec:
    """Return the complete spec of a new run on this cluster, whose device it has if it names none.

    Values of secrets that stand in it are left behind (jobs.runs.environment.split_secrets).
    Raises: SpecInvalid.
    """
    return parse_spec(split_secrets(raw)[0], device=default_device(cluster_state()))


def run_checks(spec: RunSpec, *, project: Project, user: User | None = None) -> list[Check]:
    """Return every check of the spec in the order of the form: model, data, reward, algorithm, cluster.

    A model that cannot be loaded is told once, though the data cannot be read without it either.
    """
    model, model_checks = check_model(spec, project=project)
    data_checks = check_data(spec, project=project)[1]
    checks = [*model_checks, *data_checks, *check_lengths(spec, model)]
    if is_in(spec.algorithm, "rl") and not any(c.state == "failed" for c in data_checks):
        checks += check_reward(spec, project=project, user=user)
    checks += check_algorithm(spec, project=project, user=user)
    return list(dict.fromkeys([*checks, *check_trainer(spec), *check_cluster(spec, cluster_state())]))


def check_trainer(spec: RunSpec) -> list[Check]:
    """Return whether the cluster has another trainer in this version, as far as it can be told from here.

    What is declared is looked for where the cluster is this machine; the runner asks the interpreter itself, before it
    starts anything.
    """
    if spec.is_native:
        return []
    info, version = trainers()[spec.trainer.name], spec.trainer.version
    try:
        adapter(spec.trainer.name).command(spec=spec, run_dir=Path("/run"), python="python", device="cuda")
    except ValueError as error:  # what this trainer cannot be told
        return [Check(state="failed", text=in_words(sentence_of(error), _), field="trainer.name")]
    if not info.package:
        return []
    values = {"label": info.label, "version": version, "how": how_to_make(info.id, version)}
    environment = environment_of(info.id, version, read_environments(settings.TRAINERS))
    if environment is None:
        text = (
            _("No environment of %(label)s %(version)s is declared. If the cluster's nodes do not have it, %(how)s.")
            % values
        )
        return [Check(state="unknown", text=text, field="trainer.version")]
    values["at"] = environment.at or environment.kind
    if environment.kind == "python" and is_local() and not Path(environment.at).exists():
        text = _("%(label)s %(version)s is declared at %(at)s, and there is no such file: %(how)s.") % values
        return [Check(state="failed", text=text, field="trainer.version")]
    text = _("%(label)s %(version)s is declared: %(at)s") % values
    return [Check(state="passed", text=text, field="trainer.version")]


def check_model(spec: RunSpec, *, project: Project) -> tuple[ModelFacts | None, list[Check]]:
    """Return what the model is, if it can be read here, and the check of it."""
    try:
        facts = describe_model(spec, project=project)
    except TrialFailed as failed:
        is_beside = failed.field != "model.id"  # a teacher or reward model, which is a folder on the cluster or remote
        return None, [_refusal(failed, is_remote=is_beside or spec.model.kind in ("path", "hub"))]
    size = f"{facts.num_parameters:,}" if facts.num_parameters else "—"
    text = _("%(name)s, %(size)s parameters") % {"name": facts.architecture, "size": size}
    return facts, [Check(state="passed", text=text, field="model.id")]


def check_data(spec: RunSpec, *, project: Project) -> tuple[DataPreview | None, list[Check]]:
    """Return the data's preview, if it can be read here, and the checks of it."""
    try:
        preview = preview_data(spec, project=project)
    except TrialFailed as failed:
        return None, [_refusal(failed, is_remote=spec.data.kind in ("path", "hub"))]
    if preview.mapping_problem:
        is_there = _first_part(spec, preview.mapping_field) in preview.columns
        if spec.is_native or not is_there:
            fixes = (dict(preview.recognized),) if preview.recognized else ()
            said = preview.mapping_problem
            return preview, [Check(state="failed", text=said, field=preview.mapping_field, fixes=fixes)]
        text = _("Not previewed, the trainer reads its columns in its own way: %(why)s") % {
            "why": preview.mapping_problem
        }
        return preview, [Check(state="unknown", text=text, field=preview.mapping_field)]
    if is_in(spec.algorithm, "rl") and preview.num_too_long >= preview.num_train:
        text = _(
            "All %(rows)s prompts are longer than %(limit)s tokens, so none is left to train on. Raise Longest prompt."
        )
        limit = spec.int_knob("rollout.max_prompt_tokens")
        text = counted(text % {"rows": f"{preview.num_train:,}", "limit": f"{limit:,}"})
        return preview, [Check(state="failed", text=text, field="knobs.rollout.max_prompt_tokens")]
    if preview.num_left_out >= preview.num_train > 0 and spec.is_native:
        text = _("None of the %(rows)s rows has anything to learn within %(limit)s tokens. Raise Longest sample.")
        text = counted(text % {"rows": f"{preview.num_train:,}", "limit": f"{longest_sequence(spec):,}"})
        return preview, [Check(state="failed", text=text, field="knobs.train.max_sequence_tokens")]
    text = _("Data reads: %(train)s rows, %(eval)s held out") % {
        "train": f"{preview.num_train:,}",
        "eval": f"{preview.num_eval:,}",
    }
    return preview, [Check(state="passed", text=counted(text), field="data.id")]


def _first_part(spec: RunSpec, field: str) -> str:
    """Return the column that a field of the data names; of one in a nested row, the outermost."""
    return str(getattr(spec.data, field.removeprefix("data."), "")).partition(".")[0]


def check_lengths(spec: RunSpec, model: ModelFacts | None) -> list[Check]:
    """Return whether the longest sequence of the run fits into the model's context."""
    if model is None or not model.context_tokens or not longest_sequence(spec):
        return []
    longest = longest_sequence(spec)
    if is_in(spec.algorithm, "rl"):
        field, what = "knobs.rollout.max_new_tokens", _("Longest prompt plus longest response")
    else:
        field, what = "knobs.train.max_sequence_tokens", _("Longest sample")
    values = {"what": what, "longest": f"{longest:,}", "context": f"{model.context_tokens:,}"}
    if longest > model.context_tokens:
        text = _("%(what)s is %(longest)s tokens; the model's context holds %(context)s. Lower it.") % values
        return [Check(state="failed", text=text, field=field, fixes=_shorter(spec, model.context_tokens))]
    text = _("%(longest)s tokens fit the context of %(context)s") % values
    return [Check(state="passed", text=text, field=field)]


def longest_sequence(spec: RunSpec) -> int:
    """Return the most tokens that a sequence of the run has; 0 where only the data decides."""
    if is_in(spec.algorithm, "rl"):
        names = ["rollout.max_prompt_tokens", "rollout.max_new_tokens"]
    else:
        names = ["train.max_sequence_tokens"]
    values = [spec.knobs[name].value if name in spec.knobs else None for name in names]
    return sum(int(value) for value in values if value is not None) if None not in values else 0


def _shorter(spec: RunSpec, context: int) -> tuple[Mapping[str, Value], ...]:
    """Return the changes with which the longest sequence is the model's context: one of the lengths, or both."""
    if not is_in(spec.algorithm, "rl"):
        return _taken(spec, {"train.max_sequence_tokens": context})
    names = ("rollout.max_prompt_tokens", "rollout.max_new_tokens")
    prompt, answer = (spec.int_knob(name) for name in names)
    alone = _taken(spec, {names[1]: context - prompt}, {names[0]: context - answer})
    return alone or _taken(spec, {names[0]: context // 2, names[1]: context - context // 2})


def _taken(spec: RunSpec, *changes: Mapping[str, Value]) -> tuple[Mapping[str, Value], ...]:
    """Return those of the changes whose every value the run's knobs take."""
    here = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version)

    def is_taken(name: str, value: Value) -> bool:
        try:
            return name in here and here[name].check(value) == value
        except KnobValueInvalid:
            return False

    return tuple(change for change in changes if all(is_taken(name, value) for name, value in change.items()))


def check_reward(spec: RunSpec, *, project: Project, user: User | None = None) -> list[Check]:
    """Return what trying the reward on a few completions showed: a file of the user's, or tests of the data's.

    The others are ours and need no trial.
    """
    if not holds_code(spec):
        return []
    try:
        results = try_reward(spec, project=project, user=user)
    except TrialFailed as failed:
        return [_refusal(failed, is_remote=spec.data.kind in ("path", "hub") and failed.field.startswith("data."))]
    slowest = max((r.seconds for r in results), default=0.0)
    text = _("Reward answers: %(count)s samples, the slowest in %(ms)s ms") % {
        "count": len(results),
        "ms": f"{slowest * 1000:.1f}",
    }
    return [Check(state="passed", text=counted(text), field="reward.source")]


def check_algorithm(spec: RunSpec, *, project: Project, user: User | None = None) -> list[Check]:
    """Return what trying the formulas of the spec's own file showed; those of our algorithms need no trial."""
    own = spec.knobs.get("algorithm.source")
    if own is None or not own.value:
        return []
    try:
        metrics = try_algorithm(spec, project=project, user=user)
    except TrialFailed as failed:
        return [_refusal(failed, is_remote=False)]
    text = _("Your formulas work on made-up sequences and tell %(metrics)s") % {"metrics": ", ".join(metrics) or "—"}
    return [Check(state="passed", text=text, field="knobs.algorithm.source")]


def check_cluster(spec: RunSpec, state: ClusterState) -> list[Check]:
    """Return whether the cluster can hold the run; that it must wait for others is said, but no problem."""
    field = "hardware.policy_ranks" if spec.is_native else "knobs.placement.policy_gpus_per_node"
    if on_cluster(spec, state).hardware.device == "cpu" and spec.algorithm in trainers()[spec.trainer.name].needs_gpu:
        words = {"trainer": trainers()[spec.trainer.name].label, "algorithm": algorithms()[spec.algorithm].label}
        text = _("%(trainer)s trains %(algorithm)s on GPUs only, and this run would get none.") % words
        return [Check(state="failed", text=text, field="hardware.device")]
    if not state.is_reachable:
        return [Check(state="unknown", text=_("Cluster not reached: whether the run fits is not checked"), field=field)]
    verdict = place(spec, state)
    if not verdict.fits:
        if verdict.ask.gpus and not state.gpus_total:
            return [Check(state="failed", text=verdict.reason, field="hardware.device")]
        return [_with_less(spec, state) or Check(state="failed", text=verdict.reason, field=field)]
    return [Check(state="passed", text=_("The cluster can hold it"), field=field)]


def _with_less(spec: RunSpec, state: ClusterState) -> Check | None:
    """Return the refusal of a run that this cluster can never hold, with the first layout that it can and the change
    that makes it; None if no layout is small enough."""
    for changes in _smaller(spec):
        less = changed(spec, changes)
        verdict = place(less, state)
        if not verdict.fits or breach(spec, changes, allowed=set()) is not None:
            continue
        words = {
            "why": place(spec, state).reason,
            "layout": less.hardware.layout,
            "ranks": less.hardware.policy_ranks,
            "asked": f"{verdict.ask.gpus or verdict.ask.cpus:g}",
        }
        if "hardware.layout" not in changes:
            text = _("%(why)s With policy ranks %(ranks)s it needs %(asked)s.") % words
            return Check(state="failed", text=text, field="hardware.policy_ranks", fixes=(changes,))
        text = _("%(why)s The layout %(layout)s with policy ranks %(ranks)s needs %(asked)s.") % words
        return Check(state="failed", text=text, field="hardware.layout", fixes=(changes,))
    return None


def _smaller(spec: RunSpec) -> Iterator[Mapping[str, Value]]:
    """Yield the ways to run the built-in trainer on fewer devices: other layouts first, then with fewer ranks."""
    if not spec.is_native:
        return
    others = _CLOSER[spec.hardware.layout] if spec.needs("vllm") else ()
    for layout in others:
        yield {"hardware.layout": layout}
    samples = int(DERIVED["batch.samples_per_update"](spec))
    fewer = [ranks for ranks in range(spec.hardware.policy_ranks - 1, 0, -1) if samples % ranks == 0]
    for ranks in fewer:
        yield {"hardware.policy_ranks": ranks} | ({"hardware.layout": others[-1]} if others else {})


_CLOSER: Mapping[str, tuple[str, ...]] = {"split": ("shared", "colocated"), "shared": ("colocated",), "colocated": ()}
"""Layouts that put more roles on the same devices, the least of them first."""


def place(
    spec: RunSpec, state: ClusterState, *, project: Project | None = None, user: User | None = None
) -> AdmissionDecision:
    """Return what the queue would say if this run stood at its end now; with `project` what its quotas would, too."""
    device = state.device if spec.hardware.device == "auto" else spec.hardware.device
    cpus, gpus = demand(spec, device=device)
    hold = Hold()
    if project is not None:
        hold = QuotaHolds(timezone.now()).of(project_id=project.pk, person_id=user.pk if user else None, gpus=gpus)
    ask = Ask(
        run_id="",
        attempt=0,
        cpus=cpus,
        gpus=gpus,
        cpus_per_worker=float(spec.hardware.cpus_per_worker),
        held=hold.reason,
        quotas=hold.at_once,
    )
    return decide([*waiting(device=state.device), ask], holders(device=state.device), state)[-1]


def _refusal(failed: TrialFailed, *, is_remote: bool) -> Check:
    if isinstance(failed, TrialHindered):
        text = _("Not decided here, where code is tried without a network, files and more: %(why)s")
        return Check(state="unknown", text=text % {"why": failed.message}, field=failed.field)
    if isinstance(failed, TrialUnavailable):
        return Check(state="unknown", text=failed.message, field=failed.field)
    if is_remote and not is_local():
        text = _("Not checked here, the cluster is on other machines: %(why)s") % {"why": failed.message}
        return Check(state="unknown", text=text, field=failed.field)
    state: CheckState = "unknown" if isinstance(failed, PathNotAllowed) else "failed"
    return Check(state=state, text=failed.message, field=failed.field)
