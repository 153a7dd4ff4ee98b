"""What the New run page shows for each input: label, choices, help, where it stands. Knobs come from the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from django.utils.text import slugify
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.catalog_words import knob_allowed
from console.forms.new_run import baseline, show, spec_to_form
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.runspec import RunSpec
from jobs.catalog.sections import RANGES
from jobs.catalog.trainer import trainers
from profiling.config import Marks

ALGORITHMS: tuple[str, ...] = trainers()["native"].algorithms

GROUP_TITLES = {
    "train": gettext_lazy("Batch and steps"),
    "rollout": gettext_lazy("Rollout"),
    "algorithm": gettext_lazy("Objective"),
    "optimizer": gettext_lazy("Optimizer"),
    "memory": gettext_lazy("Memory and precision"),
    "eval": gettext_lazy("Evaluation"),
    "checkpoint": gettext_lazy("Checkpoints"),
    "logging": gettext_lazy("Logging"),
}
"""Order and titles of the known groups; a knob file that is not listed comes last, under its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One input. `name` is the spec's dotted field; `algorithms` says when it shows; `help` stands behind the "?"."""

    name: str
    label: str
    value: str
    kind: Literal["text", "number", "choice", "area"] = "text"
    choices: tuple[tuple[str, str], ...] = ()
    unit: str = ""
    flag: str = ""
    help: str = ""
    allowed: str = ""
    effects: tuple[tuple[str, str], ...] = ()
    source: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS
    is_essential: bool = True
    datalist: str = ""
    placeholder: str = ""

    @property
    def id(self) -> str:
        """The id of its input in the page."""
        return f"f-{slugify(self.name.replace('.', '-').replace('_', '-'))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Fields under one title; `is_open` is how it starts."""

    id: str
    title: str
    note: str
    fields: tuple[Field, ...]
    is_open: bool = True


def groups(values: Mapping[str, str]) -> list[Group]:
    """Return the groups of the form with the texts that its inputs hold now."""
    found = [_columns(values), _resources(values)]
    by_group: dict[str, list[Field]] = {name: [] for name in GROUP_TITLES}
    for knob in knobs().values():
        by_group.setdefault(knob.group, []).append(_knob_field(knob, values))
    for name, fields in by_group.items():
        title = str(GROUP_TITLES.get(name, name.replace("_", " ").capitalize()))
        found.append(Group(id=name, title=title, note="", fields=tuple(fields)))
    return [*found, _profile(values), _policy(values)]


def facts_for_script(shown: list[Group], base: RunSpec) -> dict[str, Any]:
    """Return what the page's module must know of each input: where it starts per algorithm, its type, its help."""
    start = spec_to_form(base)
    begun = {a: baseline(base, a) for a in ALGORITHMS}
    fields: dict[str, Any] = {}
    for field in (f for g in shown for f in g.fields):
        knob_id = field.name.removeprefix("knobs.")
        is_knob = field.name.startswith("knobs.")
        fields[field.name] = {
            "label": field.label,
            "kind": field.kind,
            "algorithms": field.algorithms,
            "help": field.help,
            "allowed": field.allowed,
            "effects": field.effects,
            "source": field.source,
            "flag": field.flag,
            "unit": field.unit,
            "start": {
                a: {"value": show(begun[a][knob_id]["value"]), "origin": begun[a][knob_id]["origin"]}
                for a in field.algorithms
            }
            if is_knob
            else {a: {"value": start[field.name], "origin": "default"} for a in ALGORITHMS},
        }
    for name, text in start.items():
        if not name.startswith("knobs.") and name not in fields:
            fields[name] = {
                "label": name,
                "kind": "text",
                "algorithms": ALGORITHMS,
                "start": {a: {"value": text, "origin": "default"} for a in ALGORITHMS},
            }
    return {"fields": fields, "base_algorithm": base.algorithm}


def _knob_field(knob: Knob, values: Mapping[str, str]) -> Field:
    name = f"knobs.{knob.id}"
    kind: Literal["text", "number", "choice", "area"] = "number" if knob.type in ("int", "float") else "text"
    choices: tuple[tuple[str, str], ...] = ()
    if knob.type == "bool":
        kind, choices = "choice", (("true", _("On")), ("false", _("Off")))
    elif knob.type == "choice":
        kind, choices = "choice", tuple((c, c) for c in knob.choices)
    fallback = show(knob.default_for(knob.algorithms[0]))
    return Field(
        name=name,
        label=_(knob.label),
        value=values.get(name, fallback),
        kind=kind,
        choices=choices,
        unit=_(knob.unit) if knob.unit else "",
        flag=next((f.name for f in knob.flags if f.trainer == "native"), knob.id),
        help=_(knob.help),
        allowed=knob_allowed(knob),
        effects=tuple((_EFFECTS[k], _(v)) for k, v in knob.effects.items()),
        source=knob.source,
        algorithms=tuple(knob.algorithms),
        is_essential=knob.is_essential,
    )


class _Effects(dict[str, str]):
    """What a knob's effect is on, in the reader's language; an unknown one keeps its key."""

    def __missing__(self, key: str) -> str:
        return {"memory": _("Memory"), "speed": _("Speed"), "stability": _("Stability")}.get(key, key)


_EFFECTS = _Effects()


def _columns(values: Mapping[str, str]) -> Group:
    def column(name: str, label: str, text: str, algorithms: tuple[str, ...] = ALGORITHMS) -> Field:
        full = f"data.{name}"
        return Field(
            name=full,
            label=label,
            value=values.get(full, ""),
            help=text,
            flag=full,
            algorithms=algorithms,
            datalist="data-columns",
            placeholder=_("not used") if name == "messages_column" else "",
        )

    fields = (
        column("prompt_column", _("Prompt column"), _("Holds what the model is asked.")),
        column("answer_column", _("Answer column"), _("Holds the expected answer, handed to the reward."), ("grpo",)),
        column("response_column", _("Response column"), _("Holds what the model shall learn to say."), ("sft",)),
        column(
            "messages_column",
            _("Messages column"),
            _("Holds a whole chat as a list of role and content. Where it is given, prompt and response are not read."),
            ("sft",),
        ),
        Field(
            name="data.eval_share",
            label=_("Held-out share"),
            value=values.get("data.eval_share", ""),
            kind="number",
            flag="data.eval_share",
            unit=_("of rows"),
            allowed=_("a number from %(low)s to %(high)s") % _range("data.eval_share"),
            help=_("Share of the rows that is kept for evaluation where the data has no split of its own for it."),
        ),
        Field(
            name="data.split",
            label=_("Split"),
            value=values.get("data.split", ""),
            flag="data.split",
            is_essential=False,
            help=_("Which split of a hub data set is trained on. Files have only one."),
        ),
        Field(
            name="data.eval_split",
            label=_("Held-out split"),
            value=values.get("data.eval_split", ""),
            flag="data.eval_split",
            is_essential=False,
            placeholder=_("none: hold out a share"),
            help=_("A split of the hub data set for evaluation, in place of a held-out share."),
        ),
        Field(
            name="data.system_prompt",
            label=_("System prompt"),
            value=values.get("data.system_prompt", ""),
            kind="area",
            flag="data.system_prompt",
            placeholder=_("none"),
            help=_("Put before every prompt as the system message of the model's chat template."),
        ),
    )
    return Group(id="columns", title=_("Columns and prompt"), note="", fields=fields)


def _range(name: str) -> dict[str, str]:
    low, high = RANGES[name]
    return {"low": f"{low:,.15g}", "high": f"{high:,.15g}"}


def _resources(values: Mapping[str, str]) -> Group:
    def number(name: str, label: str, text: str, algorithms: tuple[str, ...] = ALGORITHMS, unit: str = "") -> Field:
        full = f"hardware.{name}"
        return Field(
            name=full,
            label=label,
            value=values.get(full, ""),
            kind="number",
            flag=full,
            unit=unit,
            help=text,
            allowed=_("a whole number from %(low)s to %(high)s") % _range(full),
            algorithms=algorithms,
        )

    fields = (
        number(
            "policy_ranks", _("Policy ranks"), _("DeepSpeed workers that share the training. One CPU set or GPU each.")
        ),
        number(
            "rollout_engines",
            _("Rollout engines"),
            _("vLLM engines that generate completions side by side."),
            ("grpo",),
        ),
        number(
            "tensor_parallel_size",
            _("Tensor parallel"),
            _("Workers that one rollout engine is spread over. It must divide the model's attention heads."),
            ("grpo",),
        ),
        number("cpus_per_worker", _("CPUs per worker"), _("Logical CPUs that each worker takes from the cluster.")),
    )
    return Group(id="resources", title=_("Resources"), note="", fields=fields)


def _policy(values: Mapping[str, str]) -> Group:
    retry_on = Field(
        name="policy.retry_on",
        label=_("Start again"),
        value=values.get("policy.retry_on", "never"),
        kind="choice",
        choices=(
            ("never", _("Never")),
            ("cluster", _("When the cluster failed")),
            ("any", _("After any failure")),
        ),
        flag="policy.retry_on",
        help=_(
            "Whether a run that failed starts again by itself from its newest checkpoint: never, when Ray, a node or a "
            "process was lost, or also when the trainer failed after it got further than before. A run that people "
            "stopped never does."
        ),
    )
    retries = Field(
        name="policy.retries",
        label=_("Retries"),
        value=values.get("policy.retries", "0"),
        kind="number",
        flag="policy.retries",
        allowed=_("a whole number from %(low)s to %(high)s") % _range("policy.retries"),
        help=_(
            "How often it starts again by itself. The first retry waits 5 seconds, each further one twice as long, two "
            "minutes at most. Resuming the run by hand gives it all of them anew."
        ),
    )
    return Group(id="policy", title=_("After a failure"), note="", fields=(retry_on, retries))


def _profile(values: Mapping[str, str]) -> Group:
    def field(name: str, label: str, text: str, **more: Any) -> Field:
        full = f"profile.{name}"
        return Field(name=full, label=label, value=values.get(full, ""), flag=full, help=text, **more)

    def number(name: str, label: str, text: str) -> Field:
        allowed = _("a whole number from %(low)s to %(high)s") % _range(f"profile.{name}")
        return field(name, label, text, kind="number", allowed=allowed)

    tools = (("none", _("Nothing")), ("torch", _("torch profiler trace")), ("nsys", _("nsys report")))
    marks = (("auto", _("Automatic")), *((name, name) for name in get_args(Marks) if name != "auto"))
    ready = (("auto", _("Where nsys is installed")), ("on", _("On")), ("off", _("Off")))
    fields = (
        field(
            "tool",
            _("Record"),
            _(
                "A capture of some steps, asked for at launch. While the run trains, its page can record others. "
                "Phases are always measured, whatever stands here."
            ),
            kind="choice",
            choices=tools,
        ),
        number("first_step", _("First step"), _("Steps count from 1. The first one holds start-up work: skip it.")),
        number(
            "num_steps", _("Steps"), _("How many steps to record. One or two show all there is; files grow by step.")
        ),
        field(
            "roles",
            _("Roles"),
            _("Whom to record: policy, vllm, reference, divided by commas. Empty is all of them."),
            placeholder=_("all"),
            is_essential=False,
        ),
        field(
            "ranks",
            _("Ranks"),
            _("Which ranks of these roles to record: 0, 2 or 0-3. Empty is all of them."),
            placeholder=_("all"),
            is_essential=False,
        ),
        field(
            "marks",
            _("Detail marks"),
            _(
                "What names the parts inside a phase while nothing is recorded: timers measure them for the timeline, "
                "nvtx and torch name them for the profilers, mstx does so on Ascend. Automatic takes what the node has."
            ),
            kind="choice",
            choices=marks,
            is_essential=False,
        ),
        field(
            "nsys_ready",
            _("Ready for nsys"),
            _(
                "Starts the workers so that nsys can record any step of the running run. On refuses nothing: where "
                "nsys is missing, the run's page says so."
            ),
            kind="choice",
            choices=ready,
            is_essential=False,
        ),
    )
    return Group(id="profile", title=_("Profile"), note="", fields=fields)
