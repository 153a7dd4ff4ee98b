"""What fields of a spec may not say against each other."""

import re
from collections.abc import Callable

from jobs.catalog.algorithm import is_in
from jobs.catalog.diffusion_model import DiffusionModel, find_diffusion_model
from jobs.catalog.role import ROLES
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.own_profile import profile_problem
from jobs.catalog.spec.reward_parts import MAX_SOURCE_BYTES, check_reward
from jobs.catalog.spec.runspec import DataSource, RunSpec
from jobs.catalog.trainer import trainers
from profiling.config import names_of, ranks_of
from profiling.recorders.recorder import shown_by

_INTERFACES = re.compile(r"[A-Za-z0-9_,-]*")
"""What nsys may trace. Ray puts it into a shell's command as it is, so it can be nothing else."""

Refuse = Callable[[str, Sentence], None]  # field, sentence
_WHAT_ID_MEANS = {
    "path": Sentence("a path on the cluster"),
    "hub": Sentence("a hub id such as org/name"),
    "upload": Sentence("upload a file"),
    "bundled": Sentence("pick one of the list"),
}
_SECTIONS = {"model": Sentence("model"), "data": Sentence("data")}


def contradictions(spec: RunSpec) -> list[tuple[str, str]]:
    """Return (dotted field, sentence) of everything that fields say against each other. Such a spec cannot run at all.

    Rules of taste, and what other trainers ask of their options, are the business of `jobs.catalog.rules.rule`.
    """
    problems: list[tuple[str, str]] = []

    def refuse(name: str, message: Sentence) -> None:
        problems.append((name, message))

    for section, source in (("model", spec.model), ("data", spec.data)):
        if not source.id.strip():
            refuse(
                f"{section}.id",
                Sentence("Name the {section}: {what}.", section=_SECTIONS[section], what=_WHAT_ID_MEANS[source.kind]),
            )
    if (diffusion := _diffusion_model(spec.model.id)) is not None:
        text = Sentence(
            "{model} is a diffusion transformer, which no trainer here trains. Guide, Can it run? makes a "
            "hypothetical plan for it.",
            model=diffusion.label,
        )
        refuse("model.id", text)
    _check_layout(spec, refuse)
    if (
        spec.is_native
        and spec.data.kind == "path"
        and not spec.data.id.lower().endswith((".jsonl", ".json", ".csv", ".parquet"))
    ):
        text = Sentence(
            "{value} is no JSONL, JSON, CSV or Parquet. Use a path that ends in .jsonl, .json, .csv or .parquet.",
            value=repr(spec.data.id),
        )
        refuse("data.id", text)
    if spec.data.kind == "upload" and not _is_upload_id(spec.data.id):
        refuse("data.id", Sentence("{value} is not an uploaded file. Upload it again.", value=repr(spec.data.id)))
    if spec.policy.retries and spec.policy.retry_on == "never":
        refuse(
            "policy.retry_on",
            Sentence(
                "{retries} retries are asked for, and after no failure. Use cluster or any, or 0 retries.",
                retries=spec.policy.retries,
            ),
        )
    if is_in(spec.algorithm, "rl"):
        if not spec.data.prompt_column.strip():
            refuse("data.prompt_column", Sentence("Name the column that holds the prompt."))
        check_reward(spec, refuse)
    elif is_in(spec.algorithm, "labeled") and spec.data.label_column.strip():
        if not spec.data.response_column.strip():
            refuse("data.response_column", Sentence("Learning from labels needs a column of labeled responses."))
    elif _learns_preferences(spec):
        for column in ("chosen_column", "rejected_column"):
            if not getattr(spec.data, column).strip():
                refuse(
                    f"data.{column}",
                    Sentence("Learning from pairs needs a column of chosen and one of rejected responses."),
                )
    else:
        learns_all = "train.pretrain_mode" in spec.knobs and bool(spec.knob("train.pretrain_mode"))
        has_pair = spec.data.prompt_column.strip() and (spec.data.response_column.strip() or learns_all)
        if not spec.data.messages_column.strip() and not has_pair:
            refuse("data.response_column", Sentence("SFT needs a prompt and a response column, or a messages column."))
    if spec.is_native:
        if is_in(spec.algorithm, "rl"):
            _check_rollout_batches(spec, refuse)
        else:
            _check_divides(spec, "train.batch_size", spec.int_knob("train.batch_size"), refuse)
        _check_best(spec, refuse)
        if len(str(spec.knob("algorithm.source") or "").encode()) > MAX_SOURCE_BYTES:
            most = MAX_SOURCE_BYTES // 1024
            text = Sentence("The file is larger than {most} KiB. Shorten it or import a package.", most=most)
            refuse("knobs.algorithm.source", text)
    else:
        _check_told(spec, refuse)
    _check_profile(spec, refuse)
    if (problem := profile_problem(spec)) is not None:
        refuse(*problem)
    return problems


def _diffusion_model(place: str) -> DiffusionModel | None:
    """Return the diffusion transformer of a repository's name, or of a folder that is called like one."""
    name = place.strip().rstrip("/")
    try:
        return find_diffusion_model(name.rpartition("/")[2] if name.startswith(("/", "~", ".")) else name)
    except LookupError:
        return None


def _learns_preferences(spec: RunSpec) -> bool:
    return is_in(spec.algorithm, "pairs") or is_in(spec.algorithm, "labeled")


def _check_best(spec: RunSpec, refuse: Refuse) -> None:
    """Refuse a metric to rank checkpoints by that no evaluation of the run can have, as that of another set."""
    name = str(spec.knobs["checkpoint.best_metric"].value or "") if "checkpoint.best_metric" in spec.knobs else ""
    if spec.data.eval_sets and _learns_preferences(spec):
        refuse(
            "data.eval_sets",
            Sentence("Learning from preferences is evaluated on its own held-out data. Leave them out."),
        )
    if _learns_preferences(spec) and (spec.data.mixture or spec.data.weight != 1.0):
        refuse("data.mixture", Sentence("Preferences are not mixed from several data sets. Join them into one."))
    if "data" in spec.data.mixture:
        text = Sentence("{name} is what the run's first data are called. Use another name.", name="data")
        refuse("data.mixture", text)
    parts = name.split("/")
    is_known = parts[0] == "eval" and (len(parts) == 2 or (len(parts) == 3 and parts[1] in spec.data.eval_sets))
    if name not in ("", "none") and not is_known:
        sets = ", ".join(f"eval/{each}/..." for each in spec.data.eval_sets)
        text = Sentence(
            "{value} is no number of this run's evaluations. Use one such as {known}, none, or leave it empty.",
            value=repr(name),
            known=", ".join(
                each for each in ("eval/reward" if is_in(spec.algorithm, "rl") else "eval/loss", sets) if each
            ),
        )
        refuse("knobs.checkpoint.best_metric", text)


def _check_told(spec: RunSpec, refuse: Refuse) -> None:
    """Refuse what another trainer has no way of being told: it would be dropped without a word."""
    info = trainers()[spec.trainer.name]
    label = info.label
    traced = spec.knobs.get("profiling.nsys_trace")
    if traced is not None and not _INTERFACES.fullmatch(str(traced.value or "")):
        text = Sentence(
            "{value} is not a list of interfaces. Use words separated by commas: cuda,nvtx.", value=repr(traced.value)
        )
        refuse("knobs.profiling.nsys_trace", text)
    if spec.model.kind == "hub" and spec.model.revision.strip():
        text = Sentence(
            "{trainer} takes no revision of a hub model. Download that one and give its folder.", trainer=label
        )
        refuse("model.revision", text)
    is_added = info.adds_system_prompt and spec.data.kind in ("bundled", "upload")
    if spec.data.system_prompt.strip() and not is_added:
        refuse(
            "data.system_prompt",
            Sentence("{trainer} adds no system prompt to this data. Put it into the prompts.", trainer=label),
        )
    if spec.data.chat_template_kwargs:
        refuse(
            "data.chat_template_kwargs",
            Sentence("{trainer} gets no variables of the chat template from here. Leave them out.", trainer=label),
        )
    if spec.data.eval_sets:
        text = Sentence("{trainer} evaluates no sets besides its held-out data. Leave them out.", trainer=label)
        refuse("data.eval_sets", text)
    if spec.data.mixture or spec.data.weight != 1.0:
        text = Sentence("{trainer} gets no mixture of data from here. Leave it out.", trainer=label)
        refuse("data.mixture", text)
    usual = DataSource().tools_column
    if spec.data.tools_column.strip() not in ("", usual):
        text = Sentence("{trainer} takes no name for the column of tools. Use {usual}.", trainer=label, usual=usual)
        refuse("data.tools_column", text)
    knob = info.messages_through
    if knob and is_in(spec.algorithm, "answers") and spec.data.messages_column.strip() and not spec.knob(knob):
        text = Sentence(
            "{trainer} reads a messages column only through the chat template. Switch that knob on.", trainer=label
        )
        refuse(f"knobs.{knob}", text)


def _check_profile(spec: RunSpec, refuse: Refuse) -> None:
    wanted, workers = spec.profile, spec.workers
    if wanted.tool != "none" and wanted.what not in shown_by(wanted.tool):
        shown = ", ".join(shown_by(wanted.tool))
        if wanted.what == "none":
            text = Sentence(
                "Nothing is asked for, but the tool {tool} is named. Ask for {shown}, or name no tool.",
                tool=wanted.tool,
                shown=shown,
            )
        else:
            text = Sentence(
                "{tool} does not show {what}. Ask for {shown}, or name no tool.",
                tool=wanted.tool,
                what=wanted.what,
                shown=shown,
            )
        refuse("profile.what", text)
    if wanted.what == "none" and wanted.tool == "none":
        return
    roles = names_of(wanted.roles) or list(workers)
    unknown = [role for role in roles if role not in workers]
    if unknown:
        text = Sentence(
            "This run has no role {role}. Use {known}, or nothing for all.",
            role=repr(unknown[0]),
            known=", ".join(workers),
        )
        refuse("profile.roles", text)
    try:
        most = max((workers[role] for role in roles if role in workers), default=0)
        too_high = [rank for rank in ranks_of(wanted.ranks) if rank >= most]
        if too_high and most:
            words = {"rank": too_high[0], "last": most - 1}
            text = Sentence("There is no rank {rank}. Use 0 to {last}, or nothing for all.", **words)
            refuse("profile.ranks", text)
    except ValueError:
        text = Sentence(
            "{value} is not a list of ranks. Use numbers from 0, separated by commas, or ranges with the "
            "lower one first: 0, 2 or 0-3.",
            value=repr(wanted.ranks),
        )
        refuse("profile.ranks", text)
    last = wanted.first_step + wanted.num_steps - 1
    if spec.num_steps and last > spec.num_steps:
        text = Sentence(
            "Steps {first} to {last} go past the end: the run has {steps}. Record earlier or fewer steps.",
            first=wanted.first_step,
            last=last,
            steps=spec.num_steps,
        )
        refuse("profile.first_step", text)


def _is_upload_id(text: str) -> bool:
    digest = text.removeprefix("upload:")
    return text.startswith("upload:") and len(digest) == 64 and all(c in "0123456789abcdef" for c in digest)


def _check_rollout_batches(spec: RunSpec, refuse: Refuse) -> None:
    samples = spec.int_knob("rollout.prompts_per_step") * spec.int_knob("rollout.samples_per_prompt")
    updates = spec.int_knob("train.updates_per_rollout")
    if samples % updates:
        refuse(
            "knobs.train.updates_per_rollout",
            Sentence(
                "{updates} updates do not divide the {samples} samples of a step. Use a divisor.",
                updates=updates,
                samples=samples,
            ),
        )
    else:
        _check_divides(spec, "rollout.prompts_per_step", samples // updates, refuse)


def _check_layout(spec: RunSpec, refuse: Refuse) -> None:
    if not spec.is_native or spec.hardware.layout != "colocated" or not spec.needs("vllm"):
        return
    ranks, tensor = spec.hardware.policy_ranks, spec.hardware.tensor_parallel_size
    if ROLES["vllm"].share_devices(spec):
        if ranks % tensor:
            refuse(
                "hardware.tensor_parallel_size",
                Sentence(
                    "Engines on the devices of {ranks} policy ranks cannot take {tensor} of them each. Use a divisor "
                    "of {ranks}.",
                    ranks=ranks,
                    tensor=tensor,
                ),
            )
    elif spec.knobs["memory.zero_stage"].value == "3":
        refuse(
            "hardware.layout",
            Sentence(
                "The layout colocated draws with the whole weights of each rank, which ZeRO-3 spreads over them. Use "
                "ZeRO-0, 1 or 2, or let vLLM draw (rollout.engine)."
            ),
        )


def _check_divides(spec: RunSpec, knob_id: str, samples: int, refuse: Refuse) -> None:
    """Every rank gets the same number of samples per update, else collectives would wait for ever."""
    ranks = spec.hardware.policy_ranks
    if samples % ranks:
        refuse(
            f"knobs.{knob_id}",
            Sentence(
                "{samples} samples per update do not divide by {ranks} policy ranks. Use a multiple of {ranks}.",
                samples=samples,
                ranks=ranks,
            ),
        )
