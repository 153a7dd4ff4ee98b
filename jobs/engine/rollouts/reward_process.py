"""The process that a reward's code runs in: JSON lines on stdin, answers on stdout. Started by reward_pool.py.

It writes {} when it is up. First line {"source", "file_name", "limits"} -> {"turn": 0}; then {"turn", "number", "call":
[prompt, completion, answer]} -> {"turn", "reward": ...}, one at a time. What goes wrong is answered as {"turn",
"problem", "kind", "log_line"}. The code's own prints go to stderr, and what it or a program of its own reads from stdin
is empty.
"""

import faulthandler
import json
import linecache
import math
import os
import resource
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from jobs.box import confine, seccomp

Call = Callable[[str, str, str], object]
UP = b"{}"
SHOWN_CHARS = 60
_MOST_CHARS = 500  # of what an exception says, which may be all that it was given


class RewardReply(TypedDict, total=False):
    """The reward of a completion, or a problem; only the turn, 0, where the source was loaded."""

    turn: int
    reward: float
    problem: str
    kind: Literal["raised", "wrong_type", "not_started"]
    log_line: str
    is_refused: bool


def main() -> None:
    """Serve requests until stdin ends."""
    faulthandler.register(signal.SIGUSR1)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    print(UP.decode(), file=answers, flush=True)
    reward: Call | None = None
    name = "reward.py"
    for line in requests:
        request = json.loads(line)
        if "source" in request:
            name = request["file_name"]
            answer = close_in(**request["limits"])
            if not answer:
                reward, answer = load(request["source"], name)
        else:
            assert reward is not None
            answer = score(reward, request["call"], number=request["number"], name=name)
        answers.write(json.dumps({"turn": request.get("turn", 0), **answer}) + "\n")
        answers.flush()


def close_in(*, memory_mib: int, has_network: bool, is_boxed: bool = False) -> RewardReply:
    """Keep this process, and what it starts, within the limits that the run sets it; return why that cannot be."""
    confine.limit(resource.RLIMIT_CORE, 0)
    if memory_mib:
        confine.limit(resource.RLIMIT_AS, memory_mib << 20)
    try:
        if is_boxed:
            seccomp.give_up(seccomp.NETWORK, seccomp.PROCESSES, seccomp.FILES, seccomp.SYSTEM)
        elif not has_network:
            seccomp.give_up(seccomp.NETWORK)
    except seccomp.NotConfined as error:
        text = f"The reward cannot be kept off the network on this node (reward.file_network): {error}."
        return {"problem": text, "kind": "not_started", "log_line": ""}
    return {}


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


def score(reward: Call, call: Sequence[str], *, number: int, name: str) -> RewardReply:
    """Return the reward of the batch's completion of this number, counted from 1, or a problem."""
    try:
        value = reward(*call)
    except BaseException as error:
        return raised(error, name, f"on completion {number} ({call[1][:SHOWN_CHARS]!r})")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        returned = f"{type(value).__name__} {str(value)[:40]!r}"
        text = f"The reward {name} returned {returned} on completion {number}. Return a float."
        return {"problem": text, "kind": "wrong_type"}
    earned = as_float(value)
    if not math.isfinite(earned):
        text = f"The reward {name} returned {earned} on completion {number}. Return a finite number."
        return {"problem": text, "kind": "wrong_type"}
    return {"reward": earned}


def as_float(value: float) -> float:
    """Return a number as a float, infinity for a whole number that is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def raised(error: BaseException, name: str, when: str) -> RewardReply:
    """Say what the user's code raised and at which of its lines."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    line = own[-1].lineno if own else (error.lineno if isinstance(error, SyntaxError) else None)
    where = f" line {line}" if line else ""
    last = traceback.format_exception_only(error)[-1].strip()[:_MOST_CHARS]
    return {
        "problem": f"The reward {name}{where} raised {last} {when}.",
        "kind": "raised",
        "log_line": f"{name}{where}: {own[-1].line if own else last}"[:_MOST_CHARS],
        "is_refused": isinstance(error, OSError),
    }


if __name__ == "__main__":
    main()
