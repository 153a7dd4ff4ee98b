"""The knobs' values of a TRL command: what its options say, and TRL's own defaults for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.adapters.adapter import ONLY_SHELL, Omission
from jobs.adapters.command_line.arguments import CommandOption
from jobs.adapters.command_line.options import ours, whole
from jobs.adapters.command_line.services import SERVICES
from jobs.adapters.trl.command import BOARD, CONFIG
from jobs.adapters.trl.options import PER_NODE, PROCESSES, TRAINER
from jobs.adapters.trl.sections import TrlSections
from jobs.adapters.trl.units import CONVERSIONS, MICRO, NEVER, PROMPTS, SAMPLES
from jobs.catalog.flag import FORMS, Flag
from jobs.catalog.knob import Knob, default_values, knob_flags
from jobs.catalog.sentence import Sentence, sentence_of
from jobs.catalog.value import Value, value_text

_LATER = ("samples_per_generation", "accumulated_update", "rollouts", "rollouts_or_never", "rollouts_or_unset")
"""Conversions in the order in which they are read: each needs what stands before it."""

_TRUE = ("true", "yes", "t", "y", "1")
_RANK, _TARGETS = "lora.rank", "lora.target_modules"
_NO_SERVICE = (BOARD, "none", "all", "")
_EVERY = "eval.every_steps"
_GENERATION = "--generation_batch_size"


@dataclass(slots=True, kw_only=True)
class TrlValues:
    """Reads the options that are knobs; `chosen` gives what is not as it would be anyway."""

    algorithm: str
    version: str
    sections: TrlSections
    read: dict[str, Value] = field(default_factory=dict)

    def read_all(self, launcher: Sequence[CommandOption]) -> None:
        """Read what the launcher is told, then the options, then fill in TRL's defaults."""
        for written in launcher:
            self._launch(written)
        self._precision()
        self._adapter()
        self._services()
        entries = list(self._entries().values())
        for knob, flag in entries:
            if flag.form in FORMS:
                self._take(knob, flag)
        self._same_as_others()
        if self.sections.value("--save_strategy", "steps") != "steps":
            self._never_saves()
        for knob, flag in sorted(entries, key=_place_of):
            if flag.form not in FORMS and knob.id not in self.read:
                self._take(knob, flag)
        if "--eval_steps" not in self.sections.by_name:
            is_on = self.sections.value("--eval_strategy", NEVER) != NEVER
            self.read[_EVERY] = self.read.get("logging.every_steps", 0) if is_on else 0

    def chosen(self) -> dict[str, Value]:
        """Return the values that are not the catalogue's defaults."""
        defaults = default_values(self.algorithm, TRAINER, self.version)
        return {knob_id: value for knob_id, value in self.read.items() if value != defaults[knob_id]}

    def _entries(self) -> Mapping[str, tuple[Knob, Flag]]:
        return knob_flags(self.algorithm, TRAINER, self.version)

    def _now(self) -> Mapping[str, Value]:
        return {**default_values(self.algorithm, TRAINER, self.version), **self.read}

    def _take(self, knob: Knob, flag: Flag) -> None:
        """Read a knob's option; TRL's default where it is not there."""
        written = self.sections.by_name.get(flag.name)
        if written is None:
            self._set_default(knob, flag)
            return
        self.sections.taken.add(flag.name)
        if written.needs_shell:
            self.sections.refuse(written, ONLY_SHELL)
            return
        try:
            self.read[knob.id] = self._value(knob, flag, written)
        except ValueError as error:
            self.sections.refuse(written, sentence_of(error))

    def _value(self, knob: Knob, flag: Flag, written: CommandOption) -> Value:
        if flag.form == "words":
            return knob.check(",".join(written.values))
        if len(written.values) != 1:
            raise ValueError(Sentence("It takes one value, not {count}.", count=len(written.values)))
        text = written.values[0]
        if knob.is_optional and text.lower() in ("none", "null"):
            return None
        if knob.type == "int" and flag.form == "value" and text.lower() not in map(value_text, flag.values.values()):
            text = str(whole(text))
        return knob.check(ours(knob, flag, text, self._now(), CONVERSIONS))

    def _set_default(self, knob: Knob, flag: Flag) -> None:
        if flag.form in FORMS:
            own = flag.own_default()
            if own is not None:
                self.read[knob.id] = knob.check(value_text(own) if knob.type in ("choice", "text") else own)
            elif knob.is_optional:
                self.read[knob.id] = None
        elif flag.default is not None:
            try:
                self.read[knob.id] = knob.check(ours(knob, flag, value_text(flag.default), self._now(), CONVERSIONS))
            except ValueError as error:
                why = f"TRL's default is {value_text(flag.default)}: {error}"
                self.sections.unread.append(Omission(option=flag.name, value=value_text(flag.default), why=why))

    def _launch(self, written: CommandOption) -> None:
        """Read processes, and ZeRO's stage from the name of a configuration of accelerate."""
        text = written.text
        if written.name in PER_NODE and text.isdecimal():
            self.read[PROCESSES] = max(int(text), 1)
        elif written.name in ("--num_machines", "--nnodes") and text not in ("1", ""):
            self.sections.refuse(written, "Here it is started on one node.")
        elif written.name in ("--accelerate_config", "--config_file"):
            try:
                self.read["memory.zero_stage"] = CONVERSIONS["zero_config"].read(self._now(), text)
            except ValueError as error:
                self.sections.refuse(written, sentence_of(error))

    def _precision(self) -> None:
        """Two switches say one thing; bfloat16 is on where neither is set."""
        bf16, fp16 = (self.sections.value(name).lower() for name in ("--bf16", "--fp16"))
        half = "float16" if fp16 in _TRUE else "bfloat16"
        self.read["memory.precision"] = "float32" if bf16 and bf16 not in _TRUE and half == "bfloat16" else half

    def _services(self) -> None:
        """Read the loggers beside the files that Pitwall reads anyway."""
        written, config = (self.sections.by_name.get(name) for name in ("--report_to", "--config"))
        ours = CONFIG.fullmatch(config.text) if config is not None else None
        names = written.values if written is not None else ours[2].split("-") if ours else ()
        self.read[SERVICES] = ",".join(name for name in names if name not in _NO_SERVICE) or None
        if written is not None:
            self.sections.taken.add(written.name)
            if "all" in names:
                self.sections.refuse(written, "Which loggers are meant depends on what is installed. Name them.")

    def _adapter(self) -> None:
        """Without its switch no option of an adapter means anything."""
        is_on = self.sections.value("--use_peft", "false").lower() in _TRUE
        written = self.sections.by_name.get("--lora_r")
        if not is_on:
            self.read[_RANK] = 0
            if written is not None:
                self.sections.taken.add(written.name)
                self.sections.leave(written, "It means nothing without --use_peft.")
            return
        self.read[_RANK] = 16  # TRL's default
        self._take(*self._entries()[_RANK]) if written is not None else None
        if "--lora_target_modules" not in self.sections.by_name:
            why = "Without it PEFT adapts modules by the model's architecture; here all linear ones are. Choose."
            self.sections.unread.append(Omission(option="--lora_target_modules", value="", why=why))

    def _same_as_others(self) -> None:
        """Fill in what TRL takes from another option where it is not there."""
        entries = self._entries()
        for knob_id, source in (
            ("algorithm.clip_ratio_high", "algorithm.clip_ratio_low"),
            ("eval.samples_per_prompt", SAMPLES),
        ):
            if knob_id in entries and knob_id not in self.read and source in self.read:
                self.read[knob_id] = self.read[source]
        if PROMPTS in entries and _GENERATION not in self.sections.by_name:
            self._generation()

    def _generation(self) -> None:
        """A rollout is one update's samples, or so many micro-batches of every process as an option says."""
        steps = self.sections.value("--steps_per_generation")
        accumulated = self.sections.by_name.get("--gradient_accumulation_steps")
        text = steps or (accumulated.text if accumulated is not None else "1")
        try:
            samples = whole(text) * int(self._now()[MICRO] or 1) * int(self._now()[PROCESSES] or 1)
            self.read[PROMPTS] = CONVERSIONS["samples_per_generation"].read(self._now(), str(samples))
        except ValueError as error:
            self.sections.unread.append(Omission(option=_GENERATION, value="", why=str(sentence_of(error))))

    def _never_saves(self) -> None:
        written = self.sections.by_name["--save_strategy"]
        if written.text == NEVER:
            self.read["checkpoint.every_steps"] = 0
            self.sections.taken.add("--save_steps")  # which then means nothing
        else:
            self.sections.refuse(written, "Here it is saved every so many steps. Choose how many.")


def _place_of(entry: tuple[Knob, Flag]) -> int:
    form = entry[1].form
    return _LATER.index(form) + 1 if form in _LATER else 0
