"""`python -m jobs.engine.preflight.process`: one JSON object on stdin, one on stdout; how the New run page looks at a
spec before launch.

`{"op": "preview" | "reward" | "algorithm" | "model" | "config", "spec": ..., "inputs_dir": ..., "samples": n, "level":
"namespaces" | "landlock" | "none"}`, the level being how the process was closed in (jobs/box/closed.py); a spec that
cannot work is answered with `{"problem": {"field", "message"}}`. Imports no torch but for an algorithm's formulas: it
must answer in about two seconds.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.engine.data.model_files import read_config
from jobs.engine.preflight.inspection import describe_model, preview_data, try_reward
from jobs.engine.problem import RunProblem
from jobs.engine.rollouts.reward import RewardFailed


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """Return the answer to one request; never raises for what a person can put right."""
    try:
        spec = parse_spec(request.get("spec"))
        inputs_dir = Path(str(request.get("inputs_dir") or "."))
        num_samples = int(request.get("samples") or 5)
        operation = request.get("op")
        is_boxed = request.get("level") == "landlock"  # which alone does not bound what code writes and starts
        if operation == "preview":
            return preview_data(spec, inputs_dir=inputs_dir, num_samples=num_samples)
        if operation == "reward":
            return try_reward(spec, inputs_dir=inputs_dir, num_samples=num_samples, is_boxed=is_boxed)
        if operation == "algorithm":
            from jobs.engine.preflight.own_algorithm_trial import try_algorithm  # and torch with it

            return try_algorithm(spec, is_boxed=is_boxed)
        if operation == "model":
            return describe_model(spec)
        if operation == "config":
            return {"config": read_config(spec.model)}
        raise RunProblem("op", f"There is no operation {operation!r}. Use preview, reward, algorithm, model or config.")
    except SpecInvalid as error:
        first = error.problems[0]
        return {"problem": {"field": first.field, "message": first.message}}
    except RunProblem as error:
        tries_code = request.get("op") in ("reward", "algorithm") and request.get("level", "none") != "none"
        is_hindered = tries_code and _is_refused(error.__cause__)
        problem = {"field": error.field, "message": error.message}
        return {"problem": {**problem, "is_hindered": True} if is_hindered else problem}


def _is_refused(cause: BaseException | None) -> bool:
    """Return whether the person's code asked the system for what it does not get in a trial, and may get in a run."""
    return isinstance(cause, OSError) or (isinstance(cause, RewardFailed) and cause.is_refused)


def main() -> None:
    """Serve one request. What libraries print goes to stderr; stdout holds the answer alone."""
    request = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(answer(request), out, ensure_ascii=False)
    out.close()


if __name__ == "__main__":
    main()
