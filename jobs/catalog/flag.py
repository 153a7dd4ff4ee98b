"""What trainers call a knob: an option or key per trainer and version, the form its value takes, and their default.

In a knob's table, `flags` is a list of tables:

    { trainer = "<folder of jobs/adapters>", name = "--rollout.n_samples_per_prompt", default = 1, since = "0.10.2" }

| key | meaning |
|---|---|
| `trainer` | whose option it is |
| `name` | option or key; a list where several take the same value |
| `since`, `before` | first version that has it, first version that no longer has it |
| `algorithms` | ids or families where it holds; all of the knob's where it is missing |
| `form` | how the value is written, see `FORMS`; a name that is not there is a conversion of the trainer's adapter |
| `default` | the trainer's own default, in its own units and words; missing: it has none (see `Flag.default`) |
| `values` | our word -> theirs, for choices that are called otherwise: "null" is Hydra's nothing, true a bare option |
| `choices`, `range` | our words, or the least and most, that it takes here; all of the knob's where missing |
| `live` | true: a run under way takes another value at its next step (jobs.catalog.spec.live_change) |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.catalog.algorithm import expand
from jobs.catalog.trainer import as_version, trainers
from jobs.catalog.value import Scalar, value_text

FORMS = {
    "value": "the value as text",
    "switch": "the bare option where the value is true, nothing where it is false",
    "negated": "true where ours is false: a bare option on a command line, True or False in a key",
    "first": "the first of the option's two values; another knob has the second",
    "second": "the second of the option's two values",
    "words": "several values, separated by commas in ours",
}
_KEYS = {"trainer", "name", "since", "before", "algorithms", "form", "default", "values", "choices", "range", "live"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A trainer's option for a knob.

    `default` is the trainer's own, in its own units; None where the trainer leaves it unset or has none: then a value
    that is set is always written. `algorithms` is expanded, and empty where all of the knob's are meant.
    """

    trainer: str
    names: tuple[str, ...]
    since: str
    before: str
    algorithms: tuple[str, ...]
    form: str
    default: Scalar | None
    values: Mapping[str, Scalar]
    choices: tuple[str, ...]
    limits: tuple[float, ...]
    is_live: bool = False

    @property
    def name(self) -> str:
        """The first of its names, by which it is shown."""
        return self.names[0]

    def holds(self, *, trainer: str, version: str, algorithm: str) -> bool:
        """Return True if this is how `version` of `trainer` names the knob for `algorithm`."""
        if self.trainer != trainer or (self.algorithms and algorithm not in self.algorithms):
            return False
        now = as_version(version)
        return now >= as_version(self.since) and (not self.before or now < as_version(self.before))

    def own_default(self) -> Scalar | None:
        """Return the trainer's default in our words; None where there is none or an adapter has to convert it."""
        ours = {value_text(theirs): word for word, theirs in self.values.items()}
        if self.form == "switch":
            return ours.get("false", False)
        if self.form == "negated":
            return not self.default if isinstance(self.default, bool) else True
        if self.form not in FORMS or self.default is None:
            return None
        return ours.get(value_text(self.default), self.default)


def flags_of(knob_id: str, tables: list[Mapping[str, Any]]) -> tuple[Flag, ...]:
    """Return the options that a knob's table gives.

    Raises: ValueError, naming the knob, for a key, trainer or algorithm that is not known.
    """
    return tuple(_flag(knob_id, table) for table in tables)


def _flag(knob_id: str, table: Mapping[str, Any]) -> Flag:
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{knob_id}: a flag has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if table["trainer"] not in trainers():
        raise ValueError(f"{knob_id}: there is no trainer {table['trainer']!r}. Known: {', '.join(trainers())}.")
    name = table["name"]
    return Flag(
        trainer=table["trainer"],
        names=tuple(name) if isinstance(name, list) else (name,),
        since=table.get("since", ""),
        before=table.get("before", ""),
        algorithms=expand(table.get("algorithms", ())),
        form=table.get("form", "value"),
        default=table.get("default"),
        values=table.get("values", {}),
        choices=tuple(table.get("choices", ())),
        limits=tuple(float(limit) for limit in table.get("range", ())),
        is_live=table.get("live", False),
    )
