"""What single rewards promise; what all of them do is in tests/contracts/test_rewards.py.

How answers are compared is in tests/jobs/engine/rollouts/test_answers.py, the processes of the custom reward and of
checks in test_reward_pool.py beside it.
"""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.box.seccomp import NotConfined
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.failures.failure_cause import cause_of
from jobs.engine.rewards import code, math
from jobs.engine.rollouts import code_tests
from jobs.engine.rollouts import reward as rewards
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, ScoringLimits, limits_of, open_reward
from tests.jobs.engine.pool_clock import Clock

CUSTOM = "def reward(prompt, completion, answer):\n    return len(completion) / 10\n"


def score(kind: str, completion: str, answer: str = "54", source: str = CUSTOM) -> Score:
    reward = open_reward(RewardSource(kind=kind, source=source))  # type: ignore[arg-type]
    try:
        return reward.score([Completion(prompt="47 + 7?", completion=completion, answer=answer)])[0]
    finally:
        reward.close()


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


@pytest.mark.parametrize(
    ("completion", "answer", "total"),
    [
        (r"So it is \boxed{\frac{1}{2}}.", "0.5", 1.0),
        (r"So it is \boxed{\frac{1}{2}}.", r"\frac{1}{3}", 0.1),
        (r"\boxed{5} or rather \boxed{54}", "54", 1.0),
        (r"\boxed{54} #### 44", "54", 0.1),  # where a number is marked, that is the answer
        (r"#### \frac{108}{2}", "54", 1.0),
        ("#### apples", "54", 0.0),
        ("#### Monday", "Monday", 1.0),
        ("#### (1, 2)", r"\left(1,2\right)", 1.0),
        ("The final answer is 54. I hope it is correct.", "54", 0.9),
        ("Answer: 55", "54", 0.0),
        (r"so $x = \sqrt{8}$.", r"2\sqrt{2}", 0.9),
        ("54", r"\boxed{54}", 0.0),
        (r"\boxed{54}", r"47 + 7 is \boxed{54}", 1.0),
    ],
)
def test_math_reads_boxes_formulas_and_announced_answers(completion: str, answer: str, total: float) -> None:
    got = score("math", completion, answer)

    assert got.total == pytest.approx(total)
    assert got.is_right is (total >= 0.9)
    assert not got.is_abandoned


def test_a_check_that_takes_too_long_is_not_equal_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its time is over once it has begun, on the pool's clock alone."""
    begun, clock = tmp_path / "begun", Clock(monkeypatch)
    slow = f"def reward(p, c, a):\n    while '1' in c: open({str(begun)!r}, 'w').close()\n    return 1.0"
    monkeypatch.setattr(math, "_SOURCE", slow)
    reward = open_reward(RewardSource(kind="math"), ScoringLimits(check=clock.pass_once(begun.exists)))

    try:
        texts = [rf"\boxed{{x+{n}}}" for n in (1, 2, 1, 2)]  # the same pair is checked once
        scores = reward.score([Completion(prompt="", completion=text, answer="y") for text in texts])
    finally:
        reward.close()

    assert [s.is_abandoned for s in scores] == [True, False] * 2
    assert [s.total for s in scores] == [0.1, 1.0] * 2
    assert [s.is_right for s in scores] == [False, True] * 2


def test_an_expression_that_takes_for_ever_ends_its_check_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    is_begun: list[int] = []
    limits = ScoringLimits(check=Clock(monkeypatch).pass_once(lambda: bool(is_begun)))
    reward = open_reward(RewardSource(kind="math"), limits)
    roots = Completion(prompt="", completion=r"\boxed{2\sqrt{2}}", answer=r"\sqrt{8}")
    tower = Completion(prompt="", completion=r"\boxed{9^{9^{9^{9}}}}", answer="5")
    try:
        assert [s.is_right for s in reward.score([roots])] == [True]
        is_begun.append(1)
        assert [(s.is_right, s.is_abandoned) for s in reward.score([tower, roots])] == [(False, True), (True, False)]
    finally:
        reward.close()


def test_plain_numbers_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math, "RewardPool", None)

    assert score("math", r"\boxed{1,054}", "1054").total == 1.0
    assert score("math", r"\boxed{50\%}", r"\frac12").total == 1.0


def test_without_the_package_for_formulas_the_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(RewardFailed, match="math-verify, which is not installed") as failed:
        math.PLUGIN.open(RewardSource(), ScoringLimits())

    assert cause_of(failed.value, step=0, log_tail={})["side"] == "cluster"


def test_the_knobs_set_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "_num_cpus", lambda: 192)
    knobs = {"reward.num_workers": 3, "reward.timeout_seconds": 2.5}

    own, default = limits_of(parse_spec({"knobs": knobs})), limits_of(parse_spec({}))

    assert (own.num_workers, own.timeout_seconds) == (3, 2.5)
    assert (default.num_workers, default.timeout_seconds) == (16, 60.0)


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


MODEL = RewardSource(kind="model", location="/rm")
DRAWN = [Completion(prompt="p", completion="c", answer="", tokens=tokens) for tokens in ([1, 2], [1, 2, 3])]


def test_a_reward_model_is_asked_for_whole_sequences_and_its_score_is_the_reward() -> None:
    asked = []

    def ask(sequences: Sequence[Sequence[int]]) -> list[float]:
        asked.append([list(tokens) for tokens in sequences])
        return [0.5, -2.0]

    scores = open_reward(MODEL, ScoringLimits(ask_model=ask)).score(DRAWN)

    assert asked == [[[1, 2], [1, 2, 3]]]
    assert scores == [Score(total=s, parts={"model": s}, is_right=None) for s in (0.5, -2.0)]


def test_a_score_that_is_no_number_ends_the_run_or_is_kept_as_a_failure() -> None:
    def limits(*, keeps: bool) -> ScoringLimits:
        return ScoringLimits(ask_model=lambda _: [0.5, float("nan")], keeps_failures=keeps)

    with pytest.raises(RewardFailed, match="says nan of completion 2 of 2"):
        open_reward(MODEL, limits(keeps=False)).score(DRAWN)
    first, second = open_reward(MODEL, limits(keeps=True)).score(DRAWN)

    assert isinstance(first, Score)
    assert isinstance(second, RewardFailed)


def test_a_reward_model_cannot_be_asked_outside_of_a_run() -> None:
    with pytest.raises(RewardFailed, match="'/rm' scores within a run alone"):
        open_reward(MODEL)


ASSERTS = "assert add(1, 2) == 3\nassert add(2, 2) == 4"


def code_score(completion: str, answer: str = ASSERTS, **knobs: object) -> Score | RewardFailed:
    spec = parse_spec({"reward": {"kind": "code"}, "knobs": {f"reward.{name}": value for name, value in knobs.items()}})
    reward = open_reward(spec.reward, limits_of(spec))
    try:
        return reward.score([Completion(prompt="Write add.", completion=completion, answer=answer)])[0]
    finally:
        reward.close()


@pytest.mark.parametrize(
    ("completion", "how", "wanted"),
    [
        ("So:\n```python\ndef add(a, b):\n    return a + b\n```\nDone.", "all", (1.0, True)),
        ("```\nnonsense\n```\nBetter:\n```python\ndef add(a, b):\n    return a + b", "share", (1.0, True)),
        ("def add(a, b):\n    return 3", "share", (0.5, False)),
        ("def add(a, b):\n    return 3", "all", (0.0, False)),
        ("I do not know.", "share", (0.0, False)),
    ],
)
def test_the_code_reward_is_the_share_of_tests_that_pass_or_all_of_them(
    completion: str, how: str, wanted: tuple[float, bool]
) -> None:
    scored = code_score(completion, code_score=how)

    assert isinstance(scored, Score)
    assert (scored.total, scored.is_right) == wanted
    assert scored.parts == {"code": wanted[0]}
    assert scored.is_abandoned is False


@pytest.mark.parametrize(
    ("answer", "num_cases"),
    [
        ("import math\nassert f() == math.pi\nx = 1\nassert x", 2),
        ("def check(f):\n    assert f() == 1\ncheck(f)", 1),
        ('["import math", "assert f()"]', 1),
        ('[{"input": "1", "output": "2"}, {"input": ["1", "2"], "output": ["3"]}]', 2),
        ('{"inputs": ["1\\n", "2\\n"], "outputs": ["3\\n", 4], "fn_name": null}', 2),
    ],
)
def test_tests_come_in_the_forms_that_data_sets_have(answer: str, num_cases: int) -> None:
    assert code_tests.tests_of(answer).num_cases == num_cases


def test_code_that_does_not_end_is_told_as_abandoned() -> None:
    scored = code_score("while True: pass", code_seconds=1)

    assert isinstance(scored, Score)
    assert (scored.total, scored.is_abandoned) == (0.0, True)


@pytest.mark.parametrize("answer", ["", "54 = x", "{}", "[1, 2]", '[{"input": "1"}]', "x = 1"])
def test_tests_that_are_none_are_a_failure_of_the_data(answer: str) -> None:
    with pytest.raises(RewardFailed, match=r"tests of the prompt 'Write add.' cannot be run.*Use assert") as failed:
        code_score("x", answer)

    kept = code_score("x", answer, on_failure="skip")
    assert failed.value.field == "data.answer_column"
    assert isinstance(kept, RewardFailed)
    assert cause_of(failed.value, step=1, log_tail={})["side"] == "user"


def test_without_a_box_no_code_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> None:
        raise NotConfined("the kernel takes no filter of system calls")

    monkeypatch.setattr(code, "Boxes", none)

    with pytest.raises(RewardFailed, match=r"no filter of system calls\. Without one it is not run") as failed:
        code_score("x")
    assert cause_of(failed.value, step=0, log_tail={})["side"] == "cluster"


EXAMPLES = Path(__file__).parents[3] / "docs/examples/code_problems.jsonl"


def test_the_example_problems_are_solved_by_their_responses_and_by_nothing_else() -> None:
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    reward = open_reward(RewardSource(kind="code"))
    tries = [
        Completion(prompt=row["prompt"], completion=completion, answer=json.dumps(row["tests"]))
        for row in rows
        for completion in (row["response"], "def f():\n    pass")
    ]

    scores = [each.total for each in reward.score(tries) if isinstance(each, Score)]
    reward.close()

    assert scores == [1.0, 0.0] * len(rows)


NEEDS = "import socket\ndef reward(p, c, a):\n    return 1.0 if socket.socket() else 0.0"


def test_a_file_of_one_s_own_is_kept_off_the_network_and_within_memory_where_the_run_says_so() -> None:
    hog = "def reward(p, c, a):\n    return len(bytearray(1 << 30)) / (1 << 30)"
    for source, name, value, said in (
        (NEEDS, "file_network", False, "PermissionError"),
        (hog, "file_memory_mib", 512, "MemoryError"),
    ):
        scored = []
        for knobs in ({}, {f"reward.{name}": value}):
            spec = parse_spec(
                {"reward": {"kind": "custom", "source": source}, "knobs": {"reward.on_failure": "skip", **knobs}}
            )
            reward = open_reward(spec.reward, limits_of(spec))
            scored += reward.score([Completion(prompt="p", completion="c", answer="a")])
            reward.close()
        assert isinstance(scored[0], Score)
        assert scored[0].total == 1.0
        assert said in str(scored[1])
