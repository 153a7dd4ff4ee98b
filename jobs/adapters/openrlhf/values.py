"""The knobs' values of an OpenRLHF command: what its options say, and OpenRLHF's own defaults for the rest."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from jobs.adapters.adapter import ONLY_SHELL, Omission, OptionRename
from jobs.adapters.command_line.arguments import CommandOption
from jobs.adapters.command_line.options import PAIR, ours, whole
from jobs.adapters.openrlhf.command import CONVERSIONS, CORRECTION_SWITCHES
from jobs.adapters.openrlhf.options import CLIP, NODES, PER_NODE, PROCESSES, RL, TRAINER, option, program_of
from jobs.adapters.openrlhf.sections import CommandSections
from jobs.adapters.openrlhf.units import ANSWER
from jobs.catalog.flag import FORMS, Flag
from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, default_values, knob_flags
from jobs.catalog.sentence import Sentence, sentence_of
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value, value_text

Entry = tuple[Knob, Flag]
_OWN_CORRECTION = "tis"
_MODE = "algorithm.correction_mode"
_CORRECTIONS = {"tis": ("token", "clip"), "icepop": ("token", "mask"), "seq-mask-tis": ("sequence", "mask")}


@dataclass(slots=True, kw_only=True)
class Values:
    """Reads options one by one for `dialect`, the version of the command; `chosen` gives them for `target`."""

    algorithm: str
    dialect: str
    target: str
    sections: CommandSections
    read: dict[str, Value] = field(default_factory=dict)
    written: dict[str, CommandOption] = field(default_factory=dict)  # by knob: the option that says it
    later: list[tuple[Entry, CommandOption]] = field(default_factory=list)

    def take(self, written: CommandOption) -> bool:
        """Read an option; return False if it is no knob's, in no version, for this algorithm."""
        entries = self._entries(written.name)
        for knob, flag in entries:
            if written.needs_shell:
                self.sections.refuse(written, ONLY_SHELL)
                break
            if flag.form in FORMS:
                self._set((knob, flag), written)
            else:
                self.later.append(((knob, flag), written))
        return bool(entries)

    def launch(self, before: Sequence[str]) -> None:
        """Read the processes from what DeepSpeed's launcher, or torchrun, is told; RL has no launcher."""
        if program_of(self.algorithm) == RL or not before:
            return
        parts = [part for argument in before for part in argument.split("=", 1)]
        for argument, value in pairwise(parts):
            if argument in PER_NODE and value.isdecimal():
                self.read[PROCESSES] = max(int(value), 1)
            elif argument in NODES and value != "1":
                self.sections.unread.append(
                    Omission(option=argument, value=value, why="Here it is started on one node.")
                )
            elif argument == "--include":
                self.read[PROCESSES] = max(len(re.findall(r"\d+", value.partition(":")[2])), 1)

    def finish(self, by_name: Mapping[str, CommandOption]) -> None:
        """Read what depends on other options, and fill in OpenRLHF's own defaults."""
        self._clip()
        self._fill()
        self._answer(by_name)
        for (knob, flag), written in self.later:
            if flag.form == "correction_type":
                self._correct(knob, flag, written, by_name)
            else:
                self._set((knob, flag), written)
        for knob, flag in self._dialect().values():
            if flag.form not in FORMS and knob.id not in self.read and flag.default is not None:
                self._set_default(knob, flag)

    def chosen(self) -> dict[str, Value]:
        """Return the values that are not the catalogue's defaults for the target version; name what it cannot say."""
        values = {}
        here = applicable(self.algorithm, TRAINER, self.target)
        self._move_corrections(here)
        for knob_id, value in self.read.items():
            written_value = self.written.get(knob_id)
            if knob_id not in here:
                if written_value is not None:
                    self.sections.refuse(written_value, f"OpenRLHF {self.target} has no option for it.")
                continue
            knob = here[knob_id]
            if value is None and not knob.is_optional:
                continue
            try:
                value = knob.check(value)
            except KnobValueInvalid as error:
                if written_value is not None:
                    self.sections.refuse(written_value, f"OpenRLHF {self.target}: {error}")
                continue
            self._translate(knob, written_value)
            if value != default_values(self.algorithm, TRAINER, self.target)[knob_id]:
                values[knob_id] = value
        return values

    def _move_corrections(self, here: Mapping[str, Knob]) -> None:
        """Say a correction of importance weights as the target version does: by its type, or by level and mode."""
        kind, level = "algorithm.correction_type", "algorithm.correction"
        if kind in self.read and level in here:
            moved = _CORRECTIONS.get(str(self.read.pop(kind)))
            correction = self.written.pop(kind, None)
            if moved is not None:
                self.read[level], self.read[_MODE] = moved
                if correction is not None:
                    self.written[level] = correction
        elif level in self.read and kind in here and self.read.get("algorithm.correction_gate", "ratio") == "ratio":
            named = (self.read.pop(level), self.read.pop(_MODE, "mask"))
            self.read[kind] = next((name for name, meant in _CORRECTIONS.items() if meant == named), "off")

    def _translate(self, knob: Knob, written: CommandOption | None) -> None:
        now = knob.flag(trainer=TRAINER, version=self.target, algorithm=self.algorithm)
        if written is not None and now is not None and written.option not in now.names and now.form != "launcher":
            name = written.name if written.name in now.names else now.name
            self.sections.translated.append(OptionRename(option=written.option, now=name))

    def _dialect(self) -> Mapping[str, Entry]:
        return knob_flags(self.algorithm, TRAINER, self.dialect)

    def _entries(self, name: str) -> list[Entry]:
        """Return the knobs that an option sets: in the command's version, else in another."""
        for version in (self.dialect, self.target, *trainers()[TRAINER].versions):
            entries = [(k, f) for k, f in knob_flags(self.algorithm, TRAINER, version).values() if name in f.names]
            if entries := [(k, f) for k, f in entries if f.form != "launcher"]:
                return entries
        return []

    def _set(self, entry: Entry, written: CommandOption) -> None:
        knob, flag = entry
        try:
            value = self._value(knob, flag, written.values)
        except ValueError as error:
            self.sections.refuse(written, sentence_of(error))
            return
        if written.name in flag.names[1:] and knob.id in self.read and self.read[knob.id] != value:
            self.sections.refuse(written, f"{knob.label} is one knob here, and {flag.name} already says otherwise.")
            return
        self.read[knob.id] = value
        self.written[knob.id] = written

    def _value(self, knob: Knob, flag: Flag, values: Sequence[str]) -> Value:
        if flag.form in ("switch", "negated"):
            if values:
                raise ValueError(
                    Sentence("It takes no value, so OpenRLHF refuses {given}.", given=repr(" ".join(values)))
                )
            return ours(knob, flag, "true", self._values_now(), CONVERSIONS)
        if flag.form in PAIR:
            if len(values) == 1 and knob.id.startswith("algorithm.correction"):
                values = ("0", values[0])  # an upper bound alone
            if len(values) != 2:
                raise ValueError(Sentence("It takes two values."))
            return ours(knob, flag, values[flag.form == "second"], self._values_now(), CONVERSIONS)
        if flag.form == "words":
            return knob.check(",".join(values))
        if len(values) != 1:
            raise ValueError(Sentence("It takes one value, not {count}.", count=len(values)))
        text = values[0]
        if knob.type == "int" and flag.form == "value" and text not in map(value_text, flag.values.values()):
            text = str(whole(text))
        return ours(knob, flag, text, self._values_now(), CONVERSIONS)

    def _clip(self) -> None:
        """One range on both sides holds where the two are not given apart."""
        declared = option("clip", program_of(self.algorithm))
        if declared is None or CLIP[0] in self.read:
            return
        written = self.sections.fields.get("clip")
        try:
            for knob_id in CLIP:
                knob, _ = self._dialect()[knob_id]
                self.read[knob_id] = knob.check(written.values[0] if written else declared.default)
        except KnobValueInvalid as error:
            assert written is not None
            self.sections.refuse(written, sentence_of(error))
            return
        if written is not None:
            _, flag = knob_flags(self.algorithm, TRAINER, self.target)[CLIP[0]]
            self.sections.translated.append(OptionRename(option=written.option, now=flag.name))

    def _fill(self) -> None:
        for knob_id, (knob, flag) in self._dialect().items():
            if knob_id in self.read or flag.form not in FORMS:
                continue
            own = flag.own_default()
            if own is not None:
                self.read[knob_id] = knob.check(value_text(own) if knob.type in ("choice", "text") else own)
            elif knob.is_optional:
                self.read[knob_id] = None

    def _answer(self, by_name: Mapping[str, CommandOption]) -> None:
        """Divide a length for prompt and answer together where the answer has none of its own."""
        if ANSWER in self.read or ANSWER not in self._dialect():
            return
        total = next((flag for _, flag in self._dialect().values() if flag.form == "total_length"), None)
        if total is None:
            return
        written = by_name.get(total.name)
        try:
            length = whole(written.values[0] if written and written.values else str(total.default))
        except ValueError:
            return  # named when the length itself is read
        self.read[ANSWER] = max(length // 2, 1)
        if written is not None:
            _, answer = self._dialect()[ANSWER]
            why = f"It bounds prompt and answer together. Without {answer.name} half of it is put down for each."
            self.sections.unread.append(Omission(option=written.option, value=written.text, why=why))

    def _correct(self, knob: Knob, flag: Flag, written: CommandOption, by_name: Mapping[str, CommandOption]) -> None:
        """Read the older correction of importance weights: a switch, and the type beside it."""
        switch = next((name for name in flag.names if name in CORRECTION_SWITCHES), "")
        kinds = [name for name in flag.names if name not in CORRECTION_SWITCHES]
        if switch not in by_name:
            self.sections.refuse(written, f"It means nothing without {switch}.")
            return
        if written.name in CORRECTION_SWITCHES and any(name in by_name for name in kinds):
            return  # read with its type
        text = _OWN_CORRECTION if written.name in CORRECTION_SWITCHES else written.text
        try:
            self.read[knob.id] = knob.check(text)
            self.written[knob.id] = written
        except KnobValueInvalid as error:
            self.sections.refuse(written, sentence_of(error))

    def _set_default(self, knob: Knob, flag: Flag) -> None:
        try:
            self.read[knob.id] = knob.check(CONVERSIONS[flag.form].read(self._values_now(), value_text(flag.default)))
        except ValueError as error:
            why = f"OpenRLHF's default is {value_text(flag.default)}: {error}"
            self.sections.unread.append(Omission(option=flag.name, value=value_text(flag.default), why=why))

    def _values_now(self) -> Mapping[str, Value]:
        return {**default_values(self.algorithm, TRAINER, self.dialect), **self.read}
