"""What a TRL command says about model, data, reward and name: the parts that are no knobs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.adapters.adapter import ONE_VALUE, ONLY_SHELL, Omission
from jobs.adapters.command_line.arguments import CommandOption
from jobs.adapters.command_line.spec_parts import SpecParts
from jobs.adapters.inputs import MODEL
from jobs.adapters.trl.command import BUILDERS, CONFIG, DATA_FOLDER, EVAL_BATCH, OUTPUT, TEST_SPLIT
from jobs.adapters.trl.options import OURS
from jobs.catalog.algorithm import is_in

_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_OWN_REWARD = re.compile(r"inputs\.reward_(math|exact_match|format|custom)\.\w+")
_OURS_AS_WRITTEN = {
    "--output_dir": OUTPUT,
    "--enable_jit_checkpoint": "true",
    "--num_completions_to_print": "1",
    "--lora_task_type": "SEQ_CLS",
    "--disable_tqdm": "false",
}
_ROW_KEYS = {"path", "data_files", "split"}


@dataclass(slots=True, kw_only=True)
class TrlSections(SpecParts):
    """The parts of a spec so far, and all options by name."""

    by_name: Mapping[str, CommandOption]

    def value(self, name: str, default: str = "") -> str:
        """Return the value of an option that belongs to a section; the default where it is not there or no value."""
        written = self.by_name.get(name)
        if written is None:
            return default
        is_new = name not in self.taken
        self.taken.add(name)
        if is_new and written.needs_shell:
            self.refuse(written, ONLY_SHELL)
        elif is_new and len(written.values) != 1:
            self.refuse(written, ONE_VALUE)
        return written.values[0] if len(written.values) == 1 else default


def read_sections(algorithm: str, sections: TrlSections, datasets: tuple[Mapping[str, Any], ...]) -> None:
    """Fill in model, data, reward and name, and leave what Pitwall sets itself."""
    model = sections.value("--model_name_or_path")
    if not model:
        sections.unread.append(
            Omission(option="--model_name_or_path", value="", why="The command names no model. Choose one.")
        )
    is_bundled = model == MODEL or model.endswith(f"/{MODEL}")
    sections.spec["model"] = {"kind": "bundled"} if is_bundled else {"kind": _kind(model), "id": model}
    sections.spec["data"] = _data(algorithm, sections, datasets)
    if is_in(algorithm, "rl"):
        sections.spec["reward"] = _reward(sections)
    if name := sections.value("--run_name"):
        sections.spec["name"] = name[:120]
    _leave_ours(sections)


def _data(algorithm: str, sections: TrlSections, datasets: tuple[Mapping[str, Any], ...]) -> dict[str, object]:
    name, split = sections.value("--dataset_name"), sections.value("--dataset_train_split", "train")
    held_out = _held_out(sections)
    if not datasets and (name == DATA_FOLDER or name.endswith(f"/{DATA_FOLDER}")):
        return {"kind": "bundled"}
    data: dict[str, object] = {"kind": _kind(name), "id": name, "split": split, "eval_split": held_out}
    if datasets:
        data = _mixture(sections, datasets)
    elif not name:
        why = "The command names no data. Choose some."
        sections.unread.append(Omission(option="--dataset_name", value="", why=why))
        data["kind"] = "path"
    if is_in(algorithm, "labeled"):  # TRL splits pairs as well; what the data hold the command does not say
        return data | {"response_column": "completion", "label_column": "label"}
    return data | ({"response_column": "completion"} if is_in(algorithm, "answers") else {})


def _held_out(sections: TrlSections) -> str:
    strategy, split = sections.value("--eval_strategy", "no"), sections.value("--dataset_test_split", TEST_SPLIT)
    if strategy == "epoch":
        why = "Here it is evaluated every so many steps. Choose how many."
        sections.refuse(sections.by_name["--eval_strategy"], why)
    return "" if strategy == "no" else split


def _mixture(sections: TrlSections, datasets: tuple[Mapping[str, Any], ...]) -> dict[str, object]:
    """Return the first entry of a configuration's list of data; name what it says beyond a spec."""
    row, *others = datasets
    data_files, path = row.get("data_files"), str(row.get("path", ""))
    is_file = isinstance(data_files, str) and path in BUILDERS.values()
    place = str(data_files) if is_file else path
    rest = {key for key, value in row.items() if value is not None} - (
        _ROW_KEYS if is_file else _ROW_KEYS - {"data_files"}
    )
    if others or rest:
        what = ", ".join(sorted(map(str, rest))) or f"{len(others)} more"
        why = f"A run has one source of data: path and split of the first entry are read, not {what}."
        sections.unread.append(Omission(option="datasets", value=place, why=why))
    return {"kind": "path" if is_file else _kind(place), "id": place, "split": str(row.get("split") or "train")}


def _reward(sections: TrlSections) -> dict[str, str]:
    functions = sections.by_name.get("--reward_funcs")
    model = sections.value("--reward_model_name_or_path")
    sections.taken.add("--reward_funcs")
    if functions is None or not functions.values:
        if model:
            return {"kind": "model", "location": model}
        why = "The command names no reward. Choose one."
        sections.unread.append(Omission(option="--reward_funcs", value="", why=why))
        return {"kind": "format"}
    if model or len(functions.values) > 1:
        why = "A run has one reward; the first function is read."
        sections.refuse(functions, why)
    if own := _OWN_REWARD.fullmatch(functions.values[0]):
        if own[1] == "custom":
            sections.refuse(functions, "The command names the reward's file, not its text. Put that in.")
        return {"kind": own[1]}
    return {"kind": "file", "location": functions.values[0]}


def _leave_ours(sections: TrlSections) -> None:
    for name, why in OURS.items():
        if (written := sections.by_name.get(name)) is None:
            continue
        sections.taken.add(name)
        answers = sections.by_name.get("--num_generations_eval")
        fits = {str(EVAL_BATCH), answers.text if answers else ""}
        is_as_written = written.text == _OURS_AS_WRITTEN.get(name, "")
        if is_as_written or (name == "--per_device_eval_batch_size" and written.text in fits):
            continue
        if name == "--config":
            config = CONFIG.fullmatch(written.text)
            if config is None or config[1] == "data":
                sections.refuse(written, why)
        else:
            sections.leave(written, why)


def _kind(text: str) -> str:
    is_path = text.startswith(("/", ".", "~", "$")) or text.lower().endswith((*BUILDERS, ".txt"))
    return "path" if is_path or not _HUB.fullmatch(text) else "hub"
