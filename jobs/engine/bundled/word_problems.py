"""The bundled task: grade-school word problems, solved units first, with an answer that can be checked.

A correct solution reads `7+7=14, 4+0+1=5. #### 54`. The bundled model was trained on `flawed` solutions, which mostly
forget the carry and often leave out the `####`: reinforcement learning has something to repair, and does so in a minute
on a CPU. Standard library only.
"""

import random
from dataclasses import dataclass

NAMES = ("Ana", "Ben", "Chen", "Dara", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea")
OBJECTS = ("pens", "apples", "books", "coins", "shells", "cards", "stamps", "beads", "plums", "keys")
ADDITIONS = (
    "{name} picks {a} {object} in the morning and {b} in the evening. How many {object} in total?",
    "{name} has {a} {object} and gets {b} more. How many {object} now?",
    "There are {a} {object} in a box and {b} on the table. How many {object} does {name} see?",
    "{name} buys {a} {object} on Monday and {b} on Tuesday. How many {object} is that?",
    "{name} counts {a} red {object} and {b} blue {object}. How many {object} altogether?",
)
SUBTRACTIONS = (
    "{name} has {a} {object} and gives away {b}. How many {object} are left?",
    "There are {a} {object} on a shelf. {name} takes {b}. How many {object} remain?",
    "{name} had {a} {object} but lost {b}. How many {object} now?",
)
SHARE_ADDITIONS = 0.65
NUM_ROWS = 4096
DATA_SEED = 2026
FLAW_PROBABILITY = 0.62
FORGET_PROBABILITY = 0.93
UNMARKED_PROBABILITY = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class WordProblem:
    """`a` plus or minus `b`, as a word problem; the numbers are 1 to 49 and the result is never negative."""

    text: str
    a: int
    b: int
    is_addition: bool

    @property
    def answer(self) -> int:
        """The right result."""
        return self.a + self.b if self.is_addition else self.a - self.b

    @property
    def has_carry(self) -> bool:
        """True if the units spill over into the tens (a carry or a borrow)."""
        units_a, units_b = self.a % 10, self.b % 10
        return units_a + units_b > 9 if self.is_addition else units_a < units_b


def draw_problem(rng: random.Random) -> WordProblem:
    """Return a random problem."""
    is_addition = rng.random() < SHARE_ADDITIONS
    a, b = rng.randint(1, 49), rng.randint(1, 49)
    if not is_addition:
        a, b = max(a, b), min(a, b)
    template = rng.choice(ADDITIONS if is_addition else SUBTRACTIONS)
    text = template.format(name=rng.choice(NAMES), object=rng.choice(OBJECTS), a=a, b=b)
    return WordProblem(text=text, a=a, b=b, is_addition=is_addition)


def solve(problem: WordProblem, *, forgets_carry: bool = False, slip: int = 0, is_marked: bool = True) -> str:
    """Return the worked solution, with the wanted flaw: a forgotten carry, a `slip` in copying the result, a missing
    `####`.
    """
    sign = "+" if problem.is_addition else "-"
    units_a, units_b, tens_a, tens_b = problem.a % 10, problem.b % 10, problem.a // 10, problem.b // 10
    if problem.has_carry and not problem.is_addition:
        units_a += 10
    units = units_a + units_b if problem.is_addition else units_a - units_b
    carry = f"{sign}1" if problem.has_carry and not forgets_carry else ""
    tens = (tens_a + tens_b if problem.is_addition else tens_a - tens_b) + (int(carry) if carry else 0)
    result = max(0, tens * 10 + units % 10 + slip)
    end = f"#### {result}" if is_marked else f"The answer is {result}."
    return f"{units_a}{sign}{units_b}={units}, {tens_a}{sign}{tens_b}{carry}={tens}. {end}"


def flawed_solution(problem: WordProblem, rng: random.Random) -> str:
    """Return what the bundled model learned from: wrong with FLAW_PROBABILITY, unmarked with UNMARKED_PROBABILITY."""
    is_marked = rng.random() >= UNMARKED_PROBABILITY
    if rng.random() >= FLAW_PROBABILITY:
        return solve(problem, is_marked=is_marked)
    if problem.has_carry and rng.random() < FORGET_PROBABILITY:
        return solve(problem, forgets_carry=True, is_marked=is_marked)
    return solve(problem, slip=rng.choice((-1, 1)), is_marked=is_marked)


def worse_solution(problem: WordProblem, rng: random.Random) -> str:
    """Return a solution with a mistake that the bundled model makes: wrong as `flawed_solution` is, always."""
    is_marked = rng.random() >= UNMARKED_PROBABILITY
    if problem.has_carry:
        return solve(problem, forgets_carry=True, is_marked=is_marked)
    return solve(problem, slip=1 if problem.answer == 0 else rng.choice((-1, 1)), is_marked=is_marked)


def rows(num_rows: int = NUM_ROWS, seed: int = DATA_SEED) -> list[dict[str, str]]:
    """Return different problems with `prompt`, `answer` and a correct `response`; always the same ones for a seed.

    For learning from pairs `chosen` is that response, and `rejected` one with a mistake.
    """
    rng = random.Random(seed)
    by_question: dict[str, WordProblem] = {}
    while len(by_question) < num_rows:
        problem = draw_problem(rng)
        by_question.setdefault(problem.text, problem)
    return [
        {
            "prompt": text,
            "answer": str(problem.answer),
            "response": solve(problem),
            "chosen": solve(problem),
            "rejected": worse_solution(problem, random.Random(f"{seed}/{text}")),
        }
        for text, problem in by_question.items()
    ]
