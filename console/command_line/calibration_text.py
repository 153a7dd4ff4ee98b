"""What finished runs say of the planner, as the API answers it, as text for a terminal."""

from collections.abc import Iterator

from console.command_line.planner_json import CalibrationJson, KindJson, ProposalJson
from jobs.planner.calibration import miss_text


def calibration_text(answer: CalibrationJson) -> str:
    """Return a paragraph for each kind of device, then why runs were left out."""
    lines = [line for kind in answer["kinds"] for line in (*_kind(kind), "")]
    if not answer["kinds"]:
        lines = ["No finished run says anything of the planner yet.", ""]
    lines += [f"{each['num_runs']} left out: {each['why']}" for each in answer["left_out"]]
    lines += ["", *_joined(answer)]
    return "\n".join(lines).strip()


def _joined(answer: CalibrationJson) -> Iterator[str]:
    """Yield whether finished runs join by themselves, and which did, the newest first."""
    yield "finished runs join by themselves" if answer["joins"] else "finished runs do not join by themselves"
    for each in answer["joined"]:
        if each["why_not"]:
            yield f"  {each['run']} says nothing: {each['why_not']}"
            continue
        values = (
            ", ".join(f"{name} {new['value']:.3g}" for name, new in each["constants"].items()) or "no value changed"
        )
        errors = f"step off the plan by {_miss(each['before'])} before, {_miss(each['after'])} after"
        yield f"  {each['run']} on {each['accelerator']}: {values}; {errors} ({each['num_settings']} settings)"


def _kind(kind: KindJson) -> Iterator[str]:
    taken = f", last taken over on {kind['taken_on']}" if kind["taken_on"] else ""
    yield f"{kind['accelerator']}: {kind['num_runs']} finished runs{taken}"
    if kind["before"] is not None:
        before, after = _miss(kind["before"]), _miss(kind["after"])
        yield f"  whole steps of runs left out are missed by {before} now, {after} with this"
    for each in kind["proposals"]:
        yield f"  {each['constant']} is {each['present']:.3g} ({each['evidence']}){_summary(each)}"


def _summary(proposal: ProposalJson) -> str:
    if proposal["proposed"] is None:
        return f". {proposal['refusal']}"
    runs = f"{len(proposal['runs'])} runs of {proposal['num_settings']} settings"
    errors = f"missed by {_miss(proposal['before'])} now, {_miss(proposal['after'])} with it"
    far = f"; far off: {', '.join(proposal['far'])}" if proposal["far"] else ""
    return f", {proposal['proposed']:.3g} by {runs}, {errors}{far}"


def _miss(error: float | None) -> str:
    return "—" if error is None else str(miss_text(error))
