"""The bundled task: right where it should be, wrong as often as it should be."""

import random

from hypothesis import given
from hypothesis import strategies as st

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.bundled.word_problems import (
    FLAW_PROBABILITY,
    UNMARKED_PROBABILITY,
    WordProblem,
    draw_problem,
    flawed_solution,
    rows,
    solve,
)
from jobs.engine.rollouts.reward import Completion, open_reward


@given(seed=st.integers(0, 2**32))
def test_a_solution_ends_with_the_answer_and_every_step_of_it_holds(seed: int) -> None:
    problem = draw_problem(random.Random(seed))

    solution = solve(problem)

    steps, _, answer = solution.partition(". #### ")
    assert int(answer) == problem.answer >= 0
    for step in steps.split(", "):
        left, right = step.split("=")
        assert eval(left) == int(right)  # digits and signs of our own making


def test_the_worked_example() -> None:
    assert solve(WordProblem(text="", a=47, b=7, is_addition=True)) == "7+7=14, 4+0+1=5. #### 54"
    assert solve(WordProblem(text="", a=52, b=17, is_addition=False)) == "12-7=5, 5-1-1=3. #### 35"


def test_flaws_come_as_often_as_they_say() -> None:
    rng = random.Random(0)
    drawn = [(p, flawed_solution(p, rng)) for p in (draw_problem(rng) for _ in range(4000))]

    wrong = sum(not s.rstrip(".").endswith(f" {p.answer}") for p, s in drawn) / len(drawn)
    unmarked = sum("####" not in s for _, s in drawn) / len(drawn)
    assert abs(wrong - FLAW_PROBABILITY) < 0.03
    assert abs(unmarked - UNMARKED_PROBABILITY) < 0.03


def test_the_reward_gives_the_datas_own_solutions_full_marks() -> None:
    data = rows(200)
    reward = open_reward(RewardSource())

    scores = reward.score([Completion(prompt=r["prompt"], completion=r["response"], answer=r["answer"]) for r in data])

    assert {s.total for s in scores} == {1.0}


def test_no_problem_comes_twice() -> None:
    assert len({r["prompt"] for r in rows(1000)}) == 1000
