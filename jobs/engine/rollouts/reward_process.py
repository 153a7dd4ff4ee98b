"""The process a custom reward runs in: JSON lines on stdin, answers on stdout. Started by rewards/custom.py.

It says {} when it is up. First line {"source", "file_name"}; then {"batch": [[prompt, completion, answer], ...]} ->
{"rewards": [...]}. What goes wrong is answered as {"problem", "kind", "log_line"}. The reward's own prints go to
stderr.
"""

import faulthandler
import json
import linecache
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Literal, TypedDict

Call = Callable[[str, str, str], object]
UP = b"{}"


class RewardReply(TypedDict, total=False):
    """Rewards of a batch, or a problem; nothing where the source was loaded."""

    rewards: list[float]
    problem: str
    kind: Literal["raised", "wrong_type"]
    log_line: str


def main() -> None:
    """Serve requests until stdin ends."""
    faulthandler.register(signal.SIGUSR1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(UP.decode(), file=answers, flush=True)
    reward: Call | None = None
    name = "reward.py"
    for line in sys.stdin:
        request = json.loads(line)
        if "source" in request:
            name = request["file_name"]
            reward, answer = load(request["source"], name)
        else:
            assert reward is not None
            answer = score(reward, request["batch"], name)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def load(source: str, name: str) -> tuple[Call | None, RewardReply]:
    """Execute the source and return its `reward`, or a problem."""
    space: dict[str, object] = {"__name__": "custom_reward", "__file__": name}
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        exec(compile(source, name, "exec"), space)  # noqa: S102  the user's own code, in the user's own run
    except BaseException as error:
        return None, raised(error, name, "while it was loaded")
    reward = space.get("reward")
    if not callable(reward):
        return None, {
            "problem": f"{name} defines no function reward(prompt, completion, answer). Add it.",
            "kind": "wrong_type",
        }
    return reward, {}


def score(reward: Call, batch: list[list[str]], name: str) -> RewardReply:
    """Return the rewards of a batch, or the first problem."""
    rewards = []
    for number, (prompt, completion, answer) in enumerate(batch, start=1):
        try:
            value = reward(prompt, completion, answer)
        except BaseException as error:
            return raised(error, name, f"on completion {number} ({completion[:60]!r})")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            returned = f"{type(value).__name__} {str(value)[:40]!r}"
            text = f"The reward {name} returned {returned} on completion {number}. Return a float."
            return {"problem": text, "kind": "wrong_type"}
        if not math.isfinite(value):
            text = f"The reward {name} returned {value} on completion {number}. Return a finite number."
            return {"problem": text, "kind": "wrong_type"}
        rewards.append(float(value))
    return {"rewards": rewards}


def raised(error: BaseException, name: str, when: str) -> RewardReply:
    """Say what the user's code raised and at which of its lines."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    line = own[-1].lineno if own else (error.lineno if isinstance(error, SyntaxError) else None)
    where = f" line {line}" if line else ""
    last = traceback.format_exception_only(error)[-1].strip()
    return {
        "problem": f"The reward {name}{where} raised {last} {when}.",
        "kind": "raised",
        "log_line": f"{name}{where}: {own[-1].line if own else last}",
    }


if __name__ == "__main__":
    main()
