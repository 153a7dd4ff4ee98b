"""What fields of a spec may not say against each other. Standard library only."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobs.catalog.algorithm import is_in
from jobs.catalog.trainer import trainers
from profiling.config import names_of, ranks_of

if TYPE_CHECKING:  # the parser of specs calls this module
    from jobs.catalog.runspec import RunSpec

MAX_REWARD_SOURCE_BYTES = 64 * 1024
_INTERFACES = re.compile(r"[A-Za-z0-9_,-]*")
"""What nsys may trace. Ray puts it into a shell's command as it is, so it can be nothing else."""

Refuse = Callable[[str, str], None]  # field, sentence
_WHAT_ID_MEANS = {
    "path": "a path on the cluster",
    "hub": "a hub id such as org/name",
    "upload": "upload a file",
    "bundled": "pick one of the list",
}


def contradictions(spec: "RunSpec") -> list[tuple[str, str]]:
    """Return (dotted field, sentence) of everything that fields say against each other. Such a spec cannot run at all.

    Rules of taste, and what other trainers ask of their options, are the business of `jobs.catalog.rule`.
    """
    found: list[tuple[str, str]] = []

    def refuse(name: str, message: str) -> None:
        found.append((name, message))

    for section, source in (("model", spec.model), ("data", spec.data)):
        if not source.id.strip():
            refuse(f"{section}.id", f"Name the {section}: {_WHAT_ID_MEANS[source.kind]}.")
    if (
        spec.is_native
        and spec.data.kind == "path"
        and not spec.data.id.lower().endswith((".jsonl", ".json", ".parquet"))
    ):
        refuse("data.id", f"{spec.data.id!r} is neither JSONL nor Parquet. Use a path that ends in .jsonl or .parquet.")
    if spec.data.kind == "upload" and not _is_upload_id(spec.data.id):
        refuse("data.id", f"{spec.data.id!r} is not an uploaded file. Upload it again.")
    if spec.policy.retries and spec.policy.retry_on == "never":
        refuse(
            "policy.retry_on",
            f"{spec.policy.retries} retries are asked for, and after no failure. Use cluster or any, or 0 retries.",
        )
    if is_in(spec.algorithm, "rl"):
        if not spec.data.prompt_column.strip():
            refuse("data.prompt_column", "Name the column that holds the prompt.")
        _check_reward(spec, refuse)
    elif is_in(spec.algorithm, "pairs"):
        for column in ("chosen_column", "rejected_column"):
            if not getattr(spec.data, column).strip():
                refuse(f"data.{column}", "Learning from pairs needs a column of chosen and one of rejected answers.")
    else:
        learns_all = "train.pretrain_mode" in spec.knobs and bool(spec.knob("train.pretrain_mode"))
        has_pair = spec.data.prompt_column.strip() and (spec.data.response_column.strip() or learns_all)
        if not spec.data.messages_column.strip() and not has_pair:
            refuse("data.response_column", "SFT needs a prompt and a response column, or a messages column.")
    if spec.is_native:
        if spec.algorithm == "grpo":
            _check_grpo_batches(spec, refuse)
        else:
            _check_divides(spec, "train.batch_size", spec.int_knob("train.batch_size"), refuse)
    else:
        _check_told(spec, refuse)
    _check_profile(spec, refuse)
    return found


def _check_told(spec: "RunSpec", refuse: Refuse) -> None:
    """Refuse what another trainer has no way of being told: it would be dropped without a word."""
    label = trainers()[spec.trainer.name].label
    traced = spec.knobs.get("profiling.nsys_trace")
    if traced is not None and not _INTERFACES.fullmatch(str(traced.value or "")):
        text = f"{traced.value!r} is no list of interfaces. Use words divided by commas: cuda,nvtx."
        refuse("knobs.profiling.nsys_trace", text)
    if spec.model.kind == "hub" and spec.model.revision.strip():
        text = f"{label} takes no revision of a hub model. Download that one and give its folder."
        refuse("model.revision", text)
    is_laid_out = spec.trainer.name == "verl" and spec.data.kind in ("bundled", "upload")
    if spec.data.system_prompt.strip() and not is_laid_out:
        refuse("data.system_prompt", f"{label} adds no system prompt to this data. Put it into the prompts.")
    is_sft = spec.trainer.name == "openrlhf" and spec.algorithm == "sft"
    if is_sft and spec.data.messages_column.strip() and not spec.knob("data.apply_chat_template"):
        text = "OpenRLHF reads a messages column only through the chat template. Switch that knob on."
        refuse("knobs.data.apply_chat_template", text)


def _check_profile(spec: "RunSpec", refuse: Refuse) -> None:
    wanted, workers = spec.profile, spec.workers
    if wanted.tool == "none":
        return
    roles = names_of(wanted.roles) or list(workers)
    unknown = [role for role in roles if role not in workers]
    if unknown:
        refuse("profile.roles", f"This run has no role {unknown[0]!r}. Use {', '.join(workers)}, or nothing for all.")
    try:
        most = max((workers[role] for role in roles if role in workers), default=0)
        too_high = [rank for rank in ranks_of(wanted.ranks) if rank >= most]
        if too_high and most:
            refuse("profile.ranks", f"There is no rank {too_high[0]}. Use 0 to {most - 1}, or nothing for all.")
    except ValueError as error:
        refuse("profile.ranks", str(error))
    last = wanted.first_step + wanted.num_steps - 1
    if spec.num_steps and last > spec.num_steps:
        text = f"Steps {wanted.first_step} to {last} go past the end: the run has {spec.num_steps}."
        refuse("profile.first_step", f"{text} Record earlier or fewer steps.")


def _is_upload_id(text: str) -> bool:
    digest = text.removeprefix("upload:")
    return text.startswith("upload:") and len(digest) == 64 and all(c in "0123456789abcdef" for c in digest)


def _check_reward(spec: "RunSpec", refuse: Refuse) -> None:
    if spec.reward.kind in ("file", "url", "model"):
        if spec.is_native:
            refuse(
                "reward.kind", f"The built-in trainer cannot score by a {spec.reward.kind}. Use custom, with its file."
            )
        if not spec.reward.location.strip():
            refuse("reward.location", f"Name the {spec.reward.kind} that scores completions.")
    if spec.reward.kind == "custom" and not spec.reward.source.strip():
        refuse(
            "reward.source",
            "A custom reward needs its Python file: define reward(prompt, completion, answer) -> float.",
        )
    if len(spec.reward.source.encode()) > MAX_REWARD_SOURCE_BYTES:
        refuse(
            "reward.source",
            f"The reward file is larger than {MAX_REWARD_SOURCE_BYTES // 1024} KiB. Shorten it or import a package.",
        )
    if spec.reward.kind in ("math", "exact_match") and not spec.data.answer_column.strip():
        refuse(
            "data.answer_column",
            f"The {spec.reward.kind} reward compares with an answer. Name the column that holds it.",
        )


def _check_grpo_batches(spec: "RunSpec", refuse: Refuse) -> None:
    samples = spec.int_knob("rollout.prompts_per_step") * spec.int_knob("rollout.samples_per_prompt")
    updates = spec.int_knob("train.updates_per_rollout")
    if samples % updates:
        refuse(
            "knobs.train.updates_per_rollout",
            f"{updates} updates do not divide the {samples} samples of a step. Use a divisor.",
        )
    else:
        _check_divides(spec, "rollout.prompts_per_step", samples // updates, refuse)


def _check_divides(spec: "RunSpec", knob_id: str, samples: int, refuse: Refuse) -> None:
    """Every rank gets the same number of samples per update, else collectives would wait for ever."""
    ranks = spec.hardware.policy_ranks
    if samples % ranks:
        refuse(
            f"knobs.{knob_id}",
            f"{samples} samples per update do not divide by {ranks} policy ranks. Use a multiple of {ranks}.",
        )
