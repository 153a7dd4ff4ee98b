"""What single rewards promise; what all of them do is in tests/contracts/test_rewards.py."""

import sys
import time
from pathlib import Path

import pytest

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.failures.failure_cause import cause_of
from jobs.engine.rewards import custom
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, open_reward

CUSTOM = "def reward(prompt, completion, answer):\n    return len(completion) / 10\n"


def score(kind: str, completion: str, answer: str = "54", source: str = CUSTOM) -> Score:
    reward = open_reward(RewardSource(kind=kind, source=source))  # type: ignore[arg-type]
    try:
        return reward.score([Completion(prompt="47 + 7?", completion=completion, answer=answer)])[0]
    finally:
        reward.close()


def custom_failure(source: str, *, timeout_seconds: float = 20) -> RewardFailed:
    def run() -> None:
        given = RewardSource(kind="custom", source=source, file_name="mine.py")
        reward = open_reward(given, timeout_seconds=timeout_seconds)
        try:
            reward.score([Completion(prompt="p", completion="abc", answer="1")])
        finally:
            reward.close()

    with pytest.raises(RewardFailed) as caught:
        run()
    return caught.value


@pytest.mark.parametrize(
    ("completion", "answer", "total"),
    [
        ("7+7=14, 4+0+1=5. #### 54", "54", 1.0),
        ("7+7=14, 4+0=4. #### 44", "54", 0.1),
        ("The answer is 54.", "54", 0.0),
        ("#### 44 no, #### 54", "54", 1.0),
        ("#### 1,054.0", "1054", 1.0),
        ("#### -3", "-3", 1.0),
        ("#### $5", "so 2+3=5 #### 5", 1.0),
        ("#### 5", "five", 0.1),
    ],
)
def test_math_gives_nine_tenths_for_the_number_and_one_for_the_form(completion: str, answer: str, total: float) -> None:
    assert score("math", completion, answer).total == pytest.approx(total)
    assert score("math", completion, answer).is_right is (total == 1.0)


def test_exact_match_forgives_case_and_space_at_the_ends() -> None:
    assert score("exact_match", " Paris\n", "paris").total == 1.0
    assert score("exact_match", "Paris, France", "Paris").total == 0.0


def test_format_wants_one_marked_number_at_the_end() -> None:
    assert score("format", "so #### 7").total == 1.0
    assert score("format", "#### 7 done").total == 0.0
    assert score("format", "#### 7 #### 7").total == 0.0
    assert score("format", "#### 7").is_right is None


def test_a_custom_reward_runs_the_given_source() -> None:
    assert score("custom", "abc").total == pytest.approx(0.3)


def test_a_custom_reward_may_print() -> None:
    assert score("custom", "abc", source="def reward(p, c, a):\n    print('hello')\n    return 1").total == 1.0


def test_a_custom_reward_finds_no_token_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PITWALL_TOKEN", "RAY_AUTH_TOKEN", "HF_TOKEN", "JUDGE_KEY"):
        monkeypatch.setenv(name, "x")
    source = (
        "import os\n"
        "def reward(prompt, completion, answer):\n"
        "    return 10 * ('JUDGE_KEY' in os.environ) + sum('TOKEN' in name for name in os.environ)\n"
    )

    assert score("custom", "abc", source=source).total == 10


def test_a_reward_that_raises_names_file_line_and_completion() -> None:
    failed = custom_failure("def reward(p, c, a):\n    x = 1\n    return x / 0")

    assert failed.kind == "raised"
    assert str(failed) == (
        "The reward mine.py line 3 raised ZeroDivisionError: division by zero on completion 1 ('abc')."
    )
    assert failed.log_line == "mine.py line 3: return x / 0"


def test_a_reward_that_hangs_is_ended_and_its_line_named() -> None:
    begin = time.monotonic()

    failed = custom_failure("def reward(p, c, a):\n    while True:\n        pass", timeout_seconds=5)

    assert time.monotonic() - begin < 60
    assert failed.kind == "hung"
    assert "did not answer within 5 s while scoring 1 completions, at mine.py line" in str(failed)


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("def reward(p, c, a):\n    return '1'", "wrong_type", "returned str '1' on completion 1. Return a float."),
        ("def reward(p, c, a):\n    return float('nan')", "wrong_type", "Return a finite number"),
        ("x = 1", "wrong_type", "defines no function reward(prompt, completion, answer)"),
        ("def reward(", "raised", "mine.py line 1 raised SyntaxError"),
        ("import no_such_package", "raised", "mine.py line 1 raised ModuleNotFoundError"),
        ("import os\ndef reward(p, c, a):\n    os._exit(3)", "died", "ended its process while scoring"),
    ],
)
def test_what_else_goes_wrong_is_told_apart(source: str, kind: str, said: str) -> None:
    failed = custom_failure(source)

    assert failed.kind == kind
    assert said in str(failed)


def interpret(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the reward's process be started by a shell script."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.parametrize(
    ("text", "said"),
    [("exec sleep 600", "did not start within 0.3 s"), ("echo no room >&2; exit 1", "ended while it started")],
)
def test_a_process_that_does_not_come_up_is_no_fault_of_the_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    interpret(tmp_path, monkeypatch, text)
    monkeypatch.setattr(custom, "_UP_SECONDS", 0.3 if "sleep" in text else 60.0)

    failed = custom_failure(CUSTOM)

    assert said in str(failed)
    assert cause_of(failed, step=1, log_tail={})["side"] == "cluster"


def test_an_interpreter_that_greets_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(tmp_path, monkeypatch, f'echo welcome; exec {sys.executable} "$@"')

    assert score("custom", "abc").total == pytest.approx(0.3)
