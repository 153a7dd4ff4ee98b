"""What the code in the working directory says of runs: `python judge.py < questions > answers`, of any revision.

It is run as a file in a checkout, so that an older revision can answer the same questions. A question is a run's spec,
its planned steps and its series, or the lines of its log, and at how many moments it is asked; the answer has the
symptoms at its end, and the first step at which each was named.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

HORIZON = 1500
FIRST = 20


def main() -> None:
    """Answer every question on the standard input."""
    sys.path.insert(0, str(Path.cwd()))
    from jobs.catalog.rules import symptom

    symptom.offers = lambda *_args, **_more: ()  # what to try is not asked
    json.dump({one["name"]: answer(symptom, one) for one in json.load(sys.stdin)}, sys.stdout)


def answer(symptom: Any, question: dict[str, Any]) -> dict[str, Any]:
    """Return the symptoms at the end with their tones, and where each alarm was named first."""
    from jobs.catalog.spec.parse import parse_spec

    spec = parse_spec(question["spec"])
    known = inspect.signature(symptom.matches).parameters

    def named(step: int) -> dict[str, str]:
        numbers = {name: values for name, points in question["series"].items() if (values := read(name, points, step))}
        more = {name: value for name, value in (("planned", question["planned"]), ("step", step)) if name in known}
        lines = question.get("lines", [])
        found = [match.symptom for match in symptom.matches(spec=spec, log_lines=lines, metrics=numbers, **more)]
        return {one.id: getattr(one, "tone", "hint" if one.id.startswith("speed.") else "alarm") for one in found}

    steps = sorted({x for points in question["series"].values() for x, _y in points}) or [0]
    asked = steps[:: max(1, len(steps) // question["moments"])]
    first: dict[str, int] = {}
    for step in asked:
        for name, tone in named(step).items():
            if tone == "alarm":
                first.setdefault(name, step)
    return {"end": named(steps[-1]), "first": first}


def read(name: str, points: list[list[Any]], step: int) -> list[Any]:
    """Return the values that a run is judged by after a step, as jobs/diagnosis/numbers.py reads them.

    It has no database here, and older revisions know no such module.
    """
    known = [(x, y) for x, y in points if x <= step]
    low = max(0, step - HORIZON)
    newest = [y for x, y in known if x >= low]
    if low <= FIRST or (len(newest) < HORIZON // 2 and (newest or name.startswith("eval/"))):
        return [y for _x, y in known]
    return [y for x, y in known if x <= min(FIRST, low - 1)] + newest if newest else []


if __name__ == "__main__":
    main()
