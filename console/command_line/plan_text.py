"""The planner's answers of the API as text for a terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence

from console.command_line.planner_json import (
    AdviceJson,
    CanItRunJson,
    CostJson,
    DiffusionJson,
    HardwareJson,
    IntervalJson,
    LargestTermJson,
    LayoutsJson,
    PhaseJson,
    PlanJson,
    PoolJson,
    SensitivityJson,
)
from jobs.catalog.value import Value

_NUM_CONSTANTS = 5
_HOST = {"nothing": "fewest", "between_phases": "states away", "always": "host step"}
_CAN_HEAD = ("devices", "GiB", "binds", "step, s", "host GiB", "disk GiB", "cost of a step")
_DEVICES = {"not named": "devices not named"}
_WORDS = {"fits": "Fits", "tight": "Fits, but tight", "no": "Does not fit"}


def plan_text(plan: PlanJson) -> str:
    """Return verdict, memory by phase, time by phase and cost."""
    fleet, time, cost = plan["fleet"], plan["time"], plan["cost"]
    pool = next(pool for pool in plan["pools"] if pool["name"] == plan["pool"])
    phase = next(phase for phase in pool["phases"] if phase["phase"] == plan["phase"])
    is_over = any(each["share"] > 1 for each in plan["pools"])
    word = "May not fit" if plan["verdict"] == "tight" and is_over else _WORDS[plan["verdict"]]
    lines = [
        f"{word}: {fleet['num_devices']} x {fleet['label']}, {plan['phase']} needs "
        f"{_gib(phase['total'])} of {_gib(pool['limit'])} GiB (± {plan['band']:.0%}), most of it {plan['term']}.",
        "",
    ]
    for pool in plan["pools"]:
        terms = _terms(pool["phases"])
        rows = [[pool["name"], *terms, "sum", "of limit"]]
        for phase in pool["phases"]:
            parts = [_gib(phase["terms"].get(term, 0)) for term in terms]
            rows.append([phase["phase"], *parts, _gib(phase["total"]), f"{phase['total'] / pool['limit']:.0%}"])
        lines += [*_table(rows), ""]
    rows = [["seconds of a step", "low", "middle", "high"]]
    rows += [[name, *_ends(seconds)] for name, seconds in time["phases"].items()]
    rows.append(["step", *_ends(time["step"])])
    lines += [*_table(rows), ""]
    lines.append(f"tokens/s      {_span(time['tokens_per_second'])}")
    lines.append(f"whole run     {_whole_run(cost)}")
    if cost["money"] is not None:
        lines.append(f"cost          {_span(cost['money'])} {cost['currency']}")
    lines.append(
        f"host memory   {_gib(plan['host_bytes'])} GiB a node; checkpoint {_gib(plan['checkpoint_bytes'])} GiB"
    )
    lines += [f"note: {note}" for note in plan["notes"]]
    if plan["unpriced"]:
        lines.append(f"not estimated: {', '.join(plan['unpriced'])}")
    return "\n".join(lines)


def advice_text(advice: AdviceJson) -> str:
    """Return what would make a run fit and faster, and what each change does."""
    lines = []
    together = [advice["together"]] if advice["together"] else []
    for title, changes in (
        ("What would make it fit", [*advice["fit"], *together]),
        ("What would make it faster", advice["faster"]),
    ):
        rows = [[title, "GiB", "step, s", "changes"]]
        rows += [[m["title"], _gib(m["needed"]), _figure(m["seconds"]), _changes(m["changes"])] for m in changes]
        lines += [*(_table(rows) if changes else [f"{title}: nothing that was tried."]), ""]
    return "\n".join([*lines, *_largest_terms(advice["largest_terms"]), "", *constants_lines(advice["constants"])])


def constants_lines(moved: Sequence[SensitivityJson]) -> list[str]:
    """Return the constants that move an answer most, and the answer at the ends of their range."""
    rows = [["Constants that move it most", "low", "high", "GiB", "step, s"]]
    for each in moved[:_NUM_CONSTANTS]:
        gib, seconds = each["needed"], each["seconds"]
        ends = dict.fromkeys((_gib(gib["low"]), _gib(gib["high"])))  # one where the constant moves no memory
        spans = ("–".join(ends), _span(seconds))
        rows.append([each["name"], f"{each['low']:.4g}", f"{each['high']:.4g}", *spans])
    return _table(rows) if moved else []


def can_it_run_text(answer: CanItRunJson) -> str:
    """Return of every hardware the answer in a sentence, all beside each other, and of each what it takes."""
    lines = [f"{answer['model']}, {answer['method']}: {_parameters(answer)} parameters", ""]
    for each in answer["options"]:
        lines += [*said_lines(each), ""]
    rows = [["accelerator", "answer", *(_HOST[need["on_host"]] for need in answer["options"][0]["needs"]), *_CAN_HEAD]]
    for each in answer["options"]:
        pool = max(each["pools"], key=lambda pool: pool["share"], default=None)
        gib = "—" if pool is None else f"{max(_gibs(pool))} of {_gib(pool['limit'])}"
        money = f"{_span(each['cost_per_step'])} {answer['currency']}" if each["cost_per_step"] else "—"
        fewest = [
            f"{need['devices']}{' tight' * (need['verdict'] == 'tight')}" if need["devices"] else "—"
            for need in each["needs"]
        ]
        devices = "—" if each["devices"] is None else str(each["devices"])
        beside = ["—" if size is None else _gib(size) for size in (each["host_bytes"], each["disk_bytes"])]
        figures = [devices, gib, each["phase"] or "—", _span(each["step"]), *beside, money]
        rows.append([each["accelerator"], each["answer"], *fewest, *figures])
    lines += [*_table(rows), "", "fewest devices: nothing on the host, states between phases, the optimizer's step"]
    for each in answer["options"]:
        lines += ["", f"{each['accelerator']}:"]
        if each["terms"]:
            held = ", ".join(f"{term} {_gib(size)}" for term, size in each["terms"].items())
            lines.append(f"largest in {each['phase']}, GiB (± {each['band']:.0%}): {held}")
        lines += constants_lines(each["constants"])
        lines += [
            f"{row['bearing']}: {row['model']} on {row['devices']} x {_DEVICES.get(row['device'], row['device'])}"
            for row in each["published"]
        ]
    return "\n".join([*lines, *_notes([answer["note"], *answer["rests_on"], *_notes_of(answer["options"])])])


def _parameters(answer: CanItRunJson) -> str:
    """Return the parameters to the last one, or about how many where they are not known exactly."""
    number = answer["parameters"]
    if answer["is_exact"]:
        return f"{number:,}"
    return f"about {number / 1e9:.3g} B" if number < 1e12 else f"about {number / 1e9:,.0f} B"


def diffusion_text(answer: DiffusionJson) -> str:
    """Return the answer in sentences, a line per accelerator, and what was assumed."""
    lines = [
        f"{answer['model']}: {answer['parameters']:,} parameters, {answer['latent_tokens']:,} latent and"
        f" {answer['text_tokens']:,} text tokens a sample",
        "",
    ]
    for each in answer["options"]:
        lines += [*said_lines(each), ""]
    for each in answer["options"]:
        pool, step = each["pool"], each["step"]
        fewest = " / ".join(str(need["devices"] or "-") for need in each["needs"])
        line = f"{each['accelerator']:<14} {each['answer']:<8} fewest GPUs {fewest}"
        if pool is not None and step is not None:
            peak = max(phase["total"] for phase in pool["phases"])
            line += f"; on {pool['num_devices']}: {peak / 2**30:.1f} of {pool['limit'] / 2**30:.1f} GiB"
            line += f", step {step['middle']:,.0f} s ({step['low']:,.0f} to {step['high']:,.0f})"
        lines.append(line)
    lines.append("fewest GPUs: nothing on the host / states between phases / the optimizer and its step")
    return "\n".join([*lines, *_notes(_notes_of(answer["options"]))])


def said_lines(option: HardwareJson) -> list[str]:
    """Return the answer for one hardware in sentences: the headline, and what stands under it."""
    return [f"{option['accelerator']}: {option['answer']}. {option['says']}", *(f"  {line}" for line in option["more"])]


def _notes_of(options: Sequence[HardwareJson]) -> list[str]:
    """Return the notes of all hardware; what is not said of each of several names those of which it is."""
    of: dict[str, list[str]] = {}
    for each in options:
        for note in dict.fromkeys(each["notes"]):
            of.setdefault(note, []).append(each["accelerator"])
    return [note if len(names) == len(options) else f"{', '.join(names)}: {note}" for note, names in of.items()]


def _notes(notes: Iterable[str]) -> list[str]:
    """Return what is known beside the figures, each once."""
    return [f"note: {note}" for note in dict.fromkeys(filter(None, notes))]


def _gibs(pool: PoolJson) -> list[str]:
    return sorted((_gib(phase["total"]) for phase in pool["phases"]), key=float)[-1:]


def _largest_terms(largest_terms: Iterable[LargestTermJson]) -> list[str]:
    """Return the largest parts of memory and time, each with the change that lowers it most."""
    rows = [["What moves it most", "now", "after", "changes"]]
    for each in largest_terms:
        show = _gib if each["of"] == "memory" else _figure
        unit = "GiB" if each["of"] == "memory" else "s"
        change = each["change"]
        after = "—" if change is None else f"{show(each['after'])} {unit}"
        change_text = (
            "nothing that was tried" if change is None else f"{change['title']}: {_changes(change['changes'])}"
        )
        rows.append([each["key"], f"{show(each['now'])} {unit}", after, change_text])
    return _table(rows)


def layouts_text(layouts: LayoutsJson) -> str:
    """Return the best layouts, and why the others were rejected."""
    rows = [["", "devices", "step, s", "free GiB", "changes"]]
    for number, each in enumerate(layouts["layouts"], 1):
        seconds, room = _figure(each["seconds"]), _gib(each["room"])
        rows.append([str(number), str(each["num_devices"]), seconds, room, _changes(each["changes"])])
    lines = [f"{layouts['considered']:,} layouts, by {layouts['goal']}:", *_table(rows)]
    lines += [f"{each['count']:,} rejected: {each['label']}" for each in layouts["rejected"]]
    if layouts["skipped"]:
        lines.append(f"{layouts['skipped']:,} not looked at")
    return "\n".join(lines)


def _terms(phases: Iterable[PhaseJson]) -> list[str]:
    return list(dict.fromkeys(term for phase in phases for term in phase["terms"]))


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.1f}"


def _figure(value: float) -> str:
    """Return a number with three digits that count, never in powers of ten: 0.0213, 47.2, 1,190."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"


def _ends(interval: IntervalJson) -> list[str]:
    return [_figure(interval["low"]), _figure(interval["middle"]), _figure(interval["high"])]


def _span(interval: IntervalJson | None, unit: float = 1.0) -> str:
    return "—" if interval is None else f"{_figure(interval['low'] / unit)}–{_figure(interval['high'] / unit)}"


def _whole_run(cost: CostJson) -> str:
    if cost["seconds"] is None:
        return "hours and device hours are not known, as the number of steps is not"
    return f"{_span(cost['seconds'], 3600)} h, {_span(cost['device_hours'])} device hours"


def _changes(changes: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items()) or "as it is"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in columns: the first and the last to the left where they are words, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    is_text = [i == 0 or rows[0][i] == "changes" for i in range(len(widths))]
    return [
        "  ".join(c.ljust(w) if t else c.rjust(w) for c, w, t in zip(row, widths, is_text, strict=True)).rstrip()
        for row in rows
    ]
