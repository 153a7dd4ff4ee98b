"""What the New run page shows for each input: label, choices, help, where it stands. Knobs come from the catalogue."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from console.forms.new_run.environment_fields import environment_group
from console.forms.new_run.field import Field, FieldGroup
from console.forms.new_run.form import Combination, baseline, default_spec, show, spec_to_form
from console.forms.new_run.recipes import recipe_of
from console.labels.catalog import knob_allowed
from jobs.captures.choices import WORDS
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import Knob
from jobs.catalog.spec.runspec import RANGES, RunSpec
from jobs.catalog.trainer import BUILT_IN
from profiling.config import TOOLS, Marks

GROUP_TITLES = {
    "placement": gettext_lazy("Placement"),
    "train": gettext_lazy("Batch and steps"),
    "rollout": gettext_lazy("Rollout"),
    "algorithm": gettext_lazy("Objective"),
    "pairs": gettext_lazy("Preferences"),
    "reward": gettext_lazy("Reward"),
    "optimizer": gettext_lazy("Optimizer"),
    "memory": gettext_lazy("Memory and precision"),
    "parallel": gettext_lazy("Parallel training"),
    "async": gettext_lazy("Asynchronous training"),
    "models": gettext_lazy("Models"),
    "data": gettext_lazy("Data"),
    "lora": gettext_lazy("LoRA"),
    "kernels": gettext_lazy("Attention and kernels"),
    "quantization": gettext_lazy("Quantization"),
    "rope": gettext_lazy("Position encoding"),
    "agent": gettext_lazy("Agents and tools"),
    "eval": gettext_lazy("Evaluation"),
    "checkpoint": gettext_lazy("Checkpoints"),
    "guard": gettext_lazy("Divergence guards"),
    "logging": gettext_lazy("Logging"),
    "trace": gettext_lazy("Traces and metrics"),
    "profiling": gettext_lazy("The trainer's own profiling"),
    "skip": gettext_lazy("Rollout replay"),
}
"""Order and titles of the known groups; a knob file that is not listed comes last, under its own name."""


def groups(values: Mapping[str, str], chosen: Combination) -> list[FieldGroup]:
    """Return the groups of the form with the texts that its inputs hold now."""
    all_groups = [_columns(values, chosen), _resources(values, chosen)]
    by_group: dict[str, list[Field]] = {name: [] for name in GROUP_TITLES}
    for knob in chosen.knobs().values():
        by_group.setdefault(knob.group, []).append(_knob_field(knob, values, chosen))
    for name, fields in by_group.items():
        if fields:
            title = str(GROUP_TITLES.get(name, name.replace("_", " ").capitalize()))
            all_groups.append(FieldGroup(id=name, title=title, note="", fields=tuple(fields)))
    return [*all_groups, environment_group(values), _profile(values), _policy(values)]


def facts_for_script(shown: list[FieldGroup], base: RunSpec, chosen: Combination) -> dict[str, Any]:
    """Return what the page's module must know of each input: where it starts, its type, what it needs."""
    start = spec_to_form(base)
    begun = baseline(base, chosen)
    plain = spec_to_form(default_spec(base.algorithm, base.trainer.name, base.trainer.version))
    used = recipe_of(base)

    def origin(name: str) -> str:
        return "recipe" if used is not None and start[name] != plain.get(name, "") else "default"

    fields: dict[str, Any] = {}
    for field in (f for g in shown for f in g.fields):
        facts: dict[str, Any] = {"label": field.label, "kind": field.kind, "flag": field.flag}
        optional = {"help": field.help, "allowed": field.allowed, "unit": field.unit, "needs": field.needs}
        facts |= {name: value for name, value in optional.items() if value}
        if field.is_privileged:
            facts["privileged"] = True
        knob = begun.get(field.name.removeprefix("knobs.")) if field.name.startswith("knobs.") else None
        if knob is None:
            facts["start"] = {"value": start[field.name], "origin": origin(field.name)}
        else:
            facts["start"] = {"value": show(knob["value"]), "origin": knob["origin"]}
        fields[field.name] = facts
    for name, text in start.items():
        if not name.startswith("knobs.") and name not in fields:
            fields[name] = {"label": name, "kind": "text", "start": {"value": text, "origin": origin(name)}}
    return {
        "fields": fields,
        "algorithm": chosen.algorithm,
        "trainer": chosen.trainer,
        "version": chosen.version,
        "recipe": _(used.label) if used is not None else "",
    }


def _knob_field(knob: Knob, values: Mapping[str, str], chosen: Combination) -> Field:
    name = f"knobs.{knob.id}"
    kind: Literal["text", "number", "choice", "area", "file"] = "number" if knob.type in ("int", "float") else "text"
    choices: tuple[tuple[str, str], ...] = ()
    if knob.type == "bool":
        kind, choices = "choice", (("true", _("On")), ("false", _("Off")))
    elif knob.type == "choice":
        kind, choices = "choice", tuple((c, c) for c in knob.choices)
    elif knob.has_lines:
        kind = "file"
    elif knob.type == "text" and "\n" in values.get(name, ""):
        kind = "area"  # an input of one line would lose the others
    if choices and knob.is_optional:
        choices = (("", _("not set")), *choices)
    flag = knob.flag(trainer=chosen.trainer, version=chosen.version, algorithm=chosen.algorithm)
    return Field(
        name=name,
        label=_(knob.label),
        value=values.get(name, show(chosen.default_of(knob))),
        kind=kind,
        choices=choices,
        unit=_(knob.unit) if knob.unit else "",
        flag=flag.name if flag is not None else knob.id,
        allowed=knob_allowed(knob),
        needs=tuple((f"knobs.{n.knob}", tuple(show(v) for v in n.values), n.above) for n in knob.needs),
        is_privileged=knob.is_privileged,
        is_essential=knob.is_essential,
        placeholder=_("not set") if knob.is_optional else "",
    )


def _columns(values: Mapping[str, str], chosen: Combination) -> FieldGroup:
    is_rl, is_pairs = is_in(chosen.algorithm, "rl"), is_in(chosen.algorithm, "pairs")
    is_labeled = is_in(chosen.algorithm, "labeled")

    def column(name: str, label: str, text: str) -> Field:
        full = f"data.{name}"
        return Field(
            name=full,
            label=label,
            value=values.get(full, ""),
            help=text,
            flag=full,
            datalist="data-columns",
            placeholder=_("not used") if name in ("messages_column", "tools_column", "label_column") else "",
            is_essential=name != "tools_column",
        )

    columns = [column("prompt_column", _("Prompt column"), _("Holds what the model is asked."))]
    if is_rl:
        text = _("Holds the expected answer, handed to the reward.")
        columns.append(column("answer_column", _("Answer column"), text))
    elif is_pairs or is_labeled:
        if is_labeled:
            text = _(
                "Holds whether a response is desirable: true or false, 1 or 0. Where none is given, pairs of a chosen "
                "and a rejected response are split."
            )
            columns += [
                column("response_column", _("Response column"), _("Holds the labeled response.")),
                column("label_column", _("Label column"), text),
            ]
        columns += [
            column("chosen_column", _("Chosen column"), _("Holds the better response of a pair.")),
            column("rejected_column", _("Rejected column"), _("Holds the worse response of a pair.")),
        ]
    else:
        text = _(
            "Holds a whole chat as a list of role and content. Where it is given, prompt and response are not read."
        )
        columns += [
            column("response_column", _("Response column"), _("Holds what the model shall learn to say.")),
            column("messages_column", _("Messages column"), text),
        ]
    text = _(
        "Holds the tools that a row offers the model: a list of JSON schemas, or such a list as JSON text. A column "
        "named tools is read where there is one. Read by the built-in trainer."
    )
    columns.append(column("tools_column", _("Tools column"), text))
    fields = (
        *columns,
        Field(
            name="data.eval_share",
            label=_("Held-out fraction"),
            value=values.get("data.eval_share", ""),
            kind="number",
            flag="data.eval_share",
            unit=_("of rows"),
            allowed=_("a number from %(low)s to %(high)s") % _range("data.eval_share"),
            help=_("Fraction of the rows that is kept for evaluation where the data has no split of its own for it."),
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
            placeholder=_("none: hold out a fraction"),
            help=_("A split of the hub data set for evaluation, in place of a held-out fraction."),
        ),
        *(_sets(values) if chosen.trainer == BUILT_IN else (_eval_id(values),)),
        Field(
            name="data.system_prompt",
            label=_("System prompt"),
            value=values.get("data.system_prompt", ""),
            kind="area",
            flag="data.system_prompt",
            placeholder=_("none"),
            help=_("Put before every prompt as the system message of the model's chat template."),
        ),
        Field(
            name="data.chat_template_kwargs",
            label=_("Chat template variables"),
            value=values.get("data.chat_template_kwargs", ""),
            kind="area",
            flag="data.chat_template_kwargs",
            is_essential=False,
            placeholder='{"enable_thinking": false}',
            help=_(
                "A JSON object of variables that the model's chat template reads, the same for every row: "
                "enable_thinking, tools, documents, or whatever the template names. Read by the built-in trainer."
            ),
        ),
    )
    return FieldGroup(id="columns", title=_("Columns and prompt"), note="", fields=fields)


def _sets(values: Mapping[str, str]) -> tuple[Field, ...]:
    """Return the fields of data besides the first: held-out sets, and what is mixed into training."""
    weight = Field(
        name="data.weight",
        label=_("Weight in the mixture"),
        value=values.get("data.weight", ""),
        kind="number",
        flag="data.weight",
        is_essential=False,
        allowed=_("a number from %(low)s to %(high)s") % _range("data.weight"),
        help=_("How many examples come from this data set, in proportion to the weights of those mixed with it."),
    )
    mixture = Field(
        name="data.mixture",
        label=_("Mixed with"),
        value=values.get("data.mixture", ""),
        kind="area",
        flag="data.mixture",
        is_essential=False,
        placeholder='{"algebra": {"id": "/data/algebra.jsonl", "weight": 0.5}}',
        help=_(
            "A JSON object of training data by name, mixed with this one: id (a path on the cluster, or a hub id with "
            "kind hub and a split), weight, and columns where they are others. For each example its data set is drawn "
            "anew; the share that each has is a chart. Read by the built-in trainer."
        ),
    )
    return (_eval_sets(values), mixture, weight)


def _eval_sets(values: Mapping[str, str]) -> Field:
    return Field(
        name="data.eval_sets",
        label=_("More held-out sets"),
        value=values.get("data.eval_sets", ""),
        kind="area",
        flag="data.eval_sets",
        is_essential=False,
        placeholder='{"hard": {"id": "/data/hard.jsonl", "every_steps": 100, "samples_per_prompt": 8}}',
        help=_(
            "A JSON object of held-out sets by name, each with charts of its own, eval/<name>/accuracy and the like. A "
            "set has id (a path on the cluster, or a hub id with kind hub and a split), and may have every_steps, "
            "num_prompts, samples_per_prompt, temperature and other columns. Read by the built-in trainer."
        ),
    )


def _eval_id(values: Mapping[str, str]) -> Field:
    return Field(
        name="data.eval_id",
        label=_("Held-out data"),
        value=values.get("data.eval_id", ""),
        flag="data.eval_id",
        is_essential=False,
        placeholder=_("none: hold out a fraction"),
        help=_("A path on the cluster or a hub id of data for evaluation from another source."),
    )


def _range(name: str) -> dict[str, str]:
    low, high = RANGES[name]
    return {"low": f"{low:,.15g}", "high": f"{high:,.15g}"}


def _resources(values: Mapping[str, str], chosen: Combination) -> FieldGroup:
    def number(name: str, label: str, text: str, *, layouts: tuple[str, ...] = ()) -> Field:
        full = f"hardware.{name}"
        return Field(
            name=full,
            label=label,
            value=values.get(full, ""),
            kind="number",
            flag=full,
            help=text,
            allowed=_("a whole number from %(low)s to %(high)s") % _range(full),
            is_essential=chosen.trainer == BUILT_IN,
            needs=(("hardware.layout", layouts, None),) if layouts else (),
        )

    cpus = number("cpus_per_worker", _("CPUs per worker"), _("Logical CPUs that each worker takes from the cluster."))
    ranks_text = _("DeepSpeed workers that share the training. One CPU set or GPU each.")
    engines_text = _("vLLM engines that generate responses side by side.")
    tensor_text = _("Workers that one rollout engine is spread over. It must divide the model's attention heads.")
    fields = [cpus]
    if chosen.trainer == BUILT_IN:  # of others, the knobs of the group placement say it
        fields = [number("policy_ranks", _("Policy ranks"), ranks_text), cpus]
        if is_in(chosen.algorithm, "rl"):
            fields[:0] = [_layout(values)]
            fields[2:2] = [
                number("rollout_engines", _("Rollout engines"), engines_text, layouts=("split", "shared")),
                number("tensor_parallel_size", _("Tensor parallel"), tensor_text),
            ]
    return FieldGroup(id="resources", title=_("Resources"), note="", fields=tuple(fields))


def _layout(values: Mapping[str, str]) -> Field:
    return Field(
        name="hardware.layout",
        label=_("Layout"),
        value=values.get("hardware.layout", "split"),
        kind="choice",
        choices=(
            ("split", pgettext("layout of roles", "Split")),
            ("shared", _("Shared")),
            ("colocated", _("Colocated")),
        ),
        flag="hardware.layout",
        help=_(
            "Who sits where. Split gives each role CPUs or GPUs of its own, which wait while others work. Shared puts "
            "a copy of the reference into each policy rank: one worker less, and the ranks score their parts side by "
            "side. Colocated lets the ranks draw the responses, too, without vLLM: no second copy of the weights and "
            "nothing to sync. It is the fastest on CPU with small models, and one GPU is enough for it; vLLM is faster "
            "on GPUs with long responses."
        ),
    )


def _policy(values: Mapping[str, str]) -> FieldGroup:
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
            "Whether a run that failed restarts automatically from its newest checkpoint: never, when Ray, a node or a "
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
            "How often it restarts automatically. The first retry waits 5 seconds, each further one twice as long, two "
            "minutes at most. Resuming the run by hand gives it all of them anew."
        ),
    )
    return FieldGroup(id="policy", title=_("After a failure"), note="", fields=(retry_on, retries))


def _profile(values: Mapping[str, str]) -> FieldGroup:
    def field(name: str, label: str, text: str, **more: Any) -> Field:
        full = f"profile.{name}"
        return Field(name=full, label=label, value=values.get(full, ""), flag=full, help=text, **more)

    def number(name: str, label: str, text: str) -> Field:
        allowed = _("a whole number from %(low)s to %(high)s") % _range(f"profile.{name}")
        return field(name, label, text, kind="number", allowed=allowed)

    whats = (("none", _("Nothing")), *((what, str(title)) for what, (title, _about) in WORDS.items()))
    tools = (("none", _("Picked for it")), *((name, name) for name in TOOLS))
    marks = (("auto", _("Automatic")), *((name, name) for name in get_args(Marks) if name != "auto"))
    ready = (("auto", _("Where nsys is installed")), ("on", _("On")), ("off", _("Off")))
    fields = (
        field(
            "what",
            _("Record"),
            _(
                "What a capture of some steps shows, requested at launch. While the run trains, its page can "
                "record others. Phases are always measured, whatever is set here."
            ),
            kind="choice",
            choices=whats,
        ),
        number("first_step", _("First step"), _("Steps count from 1. The first one holds start-up work: skip it.")),
        number(
            "num_steps", _("Steps"), _("How many steps to record. One or two show all there is; files grow by step.")
        ),
        field(
            "roles",
            _("Roles"),
            _("Roles to record: policy, vllm, reference, separated by commas. Empty is all of them."),
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
            "tool",
            _("Tool"),
            _(
                "Picked once the workers are there, by their device and by what they have: nsys, torch's profiler, its "
                "memory snapshot, Ascend's profiler or samples of stacks. Name one only if you know better."
            ),
            kind="choice",
            choices=tools,
            is_essential=False,
        ),
        field(
            "marks",
            _("Detail marks"),
            _(
                "What names the parts inside a phase while nothing is recorded: timers measure them for the timeline, "
                "nvtx and torch name them for the profilers, mstx does so on Ascend. memory also measures what each "
                "phase needs on its own, and slows training on a CPU. Automatic takes what the node has."
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
    return FieldGroup(id="profile", title=_("Profile"), note="", fields=fields)
