"""How the API says no: `{"problems": [{"field", "message"}]}`, one shape for every status."""

import http
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field


class ProblemOut(BaseModel):
    """One thing wrong: the field as the spec or form names it ("" for the request as a whole), and a sentence."""

    field: str = ""
    message: str


class ProblemsOut(BaseModel):
    """Why the request was refused."""

    problems: list[ProblemOut] = Field(min_length=1)


class RequestProblem(Exception):
    """Answer the request with `status` and these problems."""

    def __init__(
        self, status: int, message: str = "", *, field: str = "", problems: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        messages = problems or {field: message}  # field -> sentence
        self.problems = [{"field": name, "message": text} for name, text in messages.items()]
        super().__init__(" ".join(messages.values()))


REFUSALS: dict[int, Any] = {
    400: ProblemsOut,
    401: ProblemsOut,
    403: ProblemsOut,
    404: ProblemsOut,
    409: ProblemsOut,
    422: ProblemsOut,
}
"""What any operation may answer besides its result; merged into each operation's `response`."""


EXPENSIVE: dict[int, Any] = REFUSALS | {429: ProblemsOut}
"""And what one may that counts against the caller's budget (console/budget.py)."""


def phrase(status: int) -> str:
    """Return the standard words of a status, for answers that have no better ones."""
    return http.HTTPStatus(status).phrase
