"""What an OpenRLHF command says about model, data, reward and algorithm: the parts that are no knobs."""

import re
from dataclasses import dataclass, field

from jobs.adapters.adapter import Omission, OptionRename
from jobs.adapters.command_line.arguments import CommandOption
from jobs.adapters.command_line.spec_parts import SpecParts
from jobs.adapters.inputs import MODEL
from jobs.adapters.openrlhf.command import ESTIMATORS, FOLDERS, UNNAMED
from jobs.adapters.openrlhf.options import DPO, RL, RM, SFT, WHY_OURS, option

_SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".arrow", ".py")
_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_OURS = re.compile(r"(.*/)?inputs/(train|eval)\.jsonl")
_OWN_REWARD = re.compile(r"(.*/)?inputs/reward_(math|exact_match|format|custom)\.py")
FILTER = ("--algo.dynamic_filtering_enable", "--dynamic_filtering")
CHAT = ("--data.apply_chat_template", "--apply_chat_template")


@dataclass(slots=True, kw_only=True)
class CommandSections(SpecParts):
    """The parts of a spec so far, and options by field of `openrlhf_options`."""

    fields: dict[str, CommandOption] = field(default_factory=dict)
    translated: list[OptionRename] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)  # every option of the command, for what depends on one being there
    target: str = ""  # the version that the spec is for

    def miss(self, name: str, program: str, why: str) -> None:
        """Name an option that is not there, as the target version names it; not one that was named already."""
        declared = option(name, program)
        assert declared is not None
        if not self.taken & {declared.dotted, declared.flat}:
            self.unread.append(Omission(option=declared.name(self.target), value="", why=why))

    def value(self, name: str, program: str) -> str:
        """Return what a field says; the parser's default where the command does not say it."""
        declared = option(name, program)
        if name in self.fields:
            return self.fields[name].values[0]
        return declared.default if declared else ""


def algorithm_of(program: str, sections: CommandSections) -> str:
    """Return the algorithm that the options make.

    GRPO's kin share one estimator: GSPO is known by its loss, DAPO by its filter of groups.
    """
    if program != RL:
        return {SFT: "sft", DPO: "dpo", RM: "rm"}[program]
    estimator = sections.value("estimator", program)
    if sections.value("policy_loss", program) == "gspo":
        if estimator != "group_norm":
            why = f"GSPO's loss goes with group_norm here, not with {estimator}; this is read as GSPO."
            sections.refuse(sections.fields["policy_loss"], why)
        return "gspo"
    if estimator == "group_norm":
        return "dapo" if sections.flags & set(FILTER) else "grpo"
    algorithm = next((name for name, theirs in ESTIMATORS.items() if theirs == estimator), "")
    if not algorithm:
        why = f"{estimator} is not offered; this is read as REINFORCE++, the estimator without a group nearest to it."
        sections.refuse(sections.fields["estimator"], why)
    return algorithm or "reinforce_pp"


def read_sections(program: str, sections: CommandSections) -> None:
    """Fill in model, data, reward and name."""
    sections.spec["model"] = _model(program, sections)
    sections.spec["data"] = _data(program, sections)
    if program == RL:
        sections.spec["reward"] = _reward(program, sections)
    name = sections.value("run_name", program)
    if name and name != UNNAMED:
        sections.spec["name"] = name[:120]
    for each, why in WHY_OURS.items():
        written = sections.fields.get(each)
        if written is not None and not written.values[0].endswith(f"/{FOLDERS[each]}"):
            sections.leave(written, why)


def _model(program: str, sections: CommandSections) -> dict[str, str]:
    text = sections.value("model", program)
    if not text:
        sections.miss("model", program, "The command names no model. Choose one.")
        return {"kind": "path", "id": ""}
    if text == MODEL or text.endswith(f"/{MODEL}"):
        return {"kind": "bundled"}
    return {"kind": _kind(text), "id": text}


def _data(program: str, sections: CommandSections) -> dict[str, object]:
    text = sections.value("data", program)
    section: dict[str, object] = {}
    is_ours = _OURS.fullmatch(text) is not None
    if is_ours:
        section["kind"] = "bundled"
    elif text:
        section |= {"kind": "hub" if all(_kind(part) == "hub" for part in text.split(",")) else "path", "id": text}
    else:
        sections.miss("data", program, "The command names no data. Choose some.")
        section |= {"kind": "path", "id": ""}
    if not is_ours:
        section["split"] = sections.value("split", program)
    section |= _columns(program, sections)
    held_out = sections.fields.get("eval")
    if held_out is None:
        if is_ours and (program != RL or "reward_url" in sections.fields):
            section["eval_share"] = 0.0
    elif _OURS.fullmatch(held_out.values[0]) is None:
        split = sections.fields["eval_split"].values[0] if "eval_split" in sections.fields else ""
        if held_out.values[0] != text:
            section["eval_id"] = held_out.values[0]
        else:
            split = split or sections.value("eval_split", program)
        section["eval_split"] = split
    return section


def _columns(program: str, sections: CommandSections) -> dict[str, str]:
    if program == SFT and "response" not in sections.fields and sections.flags & set(CHAT):
        return {"messages_column": sections.value("prompt", program)}
    names = {"prompt": "prompt_column", "answer": "answer_column", "response": "response_column"}
    names |= {"chosen": "chosen_column", "rejected": "rejected_column"}
    return {
        column: sections.value(each, program) for each, column in names.items() if option(each, program) is not None
    }


def _reward(program: str, sections: CommandSections) -> dict[str, str]:
    url, model = sections.value("reward_url", program), sections.value("reward_model", program)
    if url and model:
        sections.leave(
            sections.fields["reward_model"], "The reward comes from elsewhere, so OpenRLHF never asks this model."
        )
    if own := _OWN_REWARD.fullmatch(url):
        if own[2] == "custom":
            sections.refuse(
                sections.fields["reward_url"], "The command names the reward's file, not its text. Put that in."
            )
        return {"kind": own[2]}
    if url:
        return {"kind": "file" if url.endswith(".py") else "url", "location": url}
    if model:
        return {"kind": "model", "location": model}
    return {"kind": "format"}  # an agent of the user's scores; else the command cannot have run


def _kind(text: str) -> str:
    if text.startswith(("/", ".", "~", "$")) or text.lower().endswith(_SUFFIXES) or not _HUB.fullmatch(text):
        return "path"
    return "hub"
