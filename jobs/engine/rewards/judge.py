"""A language model as judge, behind any address that speaks OpenAI's chat completions: one request per completion.

The model is asked at temperature 0 to end with a number; the last one in the knobs' range is the score, scaled to 0
for the lowest and 1 for the highest.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, ScoringLimits
from jobs.engine.rollouts.scoring_client import ScoringClient

_PLACE = re.compile(r"\{(prompt|completion|answer)\}")
_NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)(?:\s*/\s*\d+|\s+out\s+of\s+\d+)?(?!\w)")
_ROUTE = "/chat/completions"


class JudgeReward:
    """Ask the judge about each completion, several at once."""

    def __init__(self, source: RewardPart, limits: ScoringLimits) -> None:
        self._judge = limits.judge
        self._template = source.source if source.source.strip() else limits.judge.prompt
        self._client = ScoringClient(
            chat_address(source.location), called="judge", token_env=source.token_env, limits=limits
        )

    def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
        """Return the scores, from 0 to 1; the one part is `judge`.

        Raises: RewardFailed of kind `unreachable` or `wrong_type`, unless failures are kept.
        """
        judge = self._judge
        answers = self._client.ask_all(
            [
                {
                    "model": judge.model,
                    "messages": [{"role": "user", "content": filled(self._template, c)}],
                    "temperature": 0,
                    "max_tokens": judge.max_tokens,
                }
                for c in completions
            ],
            lambda answer, _: score_in(said_in(answer), lowest=judge.lowest, highest=judge.highest),
        )
        return [
            each if isinstance(each, RewardFailed) else Score(total=each, parts={"judge": each}, is_right=None)
            for each in answers
        ]

    def close(self) -> None:
        """Nothing to end."""


def chat_address(location: str) -> str:
    """Return the address of chat completions: of a server, of its /v1, or as it is."""
    address = urlsplit(location.strip())
    path = address.path.rstrip("/")
    if not path.endswith(_ROUTE):
        path += _ROUTE if path.endswith("/v1") else f"/v1{_ROUTE}"
    return urlunsplit(address._replace(path=path))


def filled(template: str, completion: Completion) -> str:
    """Return the template with the three texts in their places; what looks like a place inside of a text stays."""
    texts = {"prompt": completion.prompt, "completion": completion.completion, "answer": completion.answer}
    return _PLACE.sub(lambda place: texts[place[1]], template)


def said_in(answer: object) -> str:
    """Return what a chat model said. Raises: ValueError with what is wrong with its response."""
    try:
        said = answer["choices"][0]["message"]["content"]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        said = None
    if not isinstance(said, str):
        raise ValueError("its response has no text at choices[0].message.content")
    return said


def score_in(said: str, *, lowest: float, highest: float) -> float:
    """Return the last number of a text that lies in the range, scaled to 0 to 1; of 7/10 it is the 7.

    Raises: ValueError if there is none.
    """
    values = [float(match[1]) for match in _NUMBER.finditer(said)]
    inside = [value for value in values if lowest <= value <= highest]
    if not inside:
        raise ValueError(f"there is no number from {lowest:g} to {highest:g} in its answer {said[-80:]!r}")
    return (inside[-1] - lowest) / (highest - lowest)


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> JudgeReward:
        """Return the scorer. Raises: RewardFailed if the knobs leave no range of scores."""
        if limits.judge.lowest >= limits.judge.highest:
            text = "The judge's scores have no range: reward.judge_lowest must be below reward.judge_highest."
            raise RewardFailed(text, kind="wrong_type", field="knobs.reward.judge_lowest")
        return JudgeReward(source, limits)


PLUGIN = Plugin()
