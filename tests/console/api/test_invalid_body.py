"""A request without the fields that an operation takes: the sentence names the value and what is allowed."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from console.api.invalid_body import sentence_of_error


class Body(BaseModel):
    model_config = {"extra": "forbid"}

    number: Annotated[int, Field(strict=True, ge=1, lt=10)] = 1
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.5
    kind: Literal["a", "b"] = "a"
    on: list[str] = Field(["x"], min_length=1, max_length=2)
    name: str = Field("", max_length=60)
    password: str = Field("", max_length=3)
    facts: dict[str, int] = {}

    @field_validator("name")
    @classmethod
    def _check(cls, value: str) -> str:
        if value == "taken":
            raise ValueError("'taken' is the name of another. Use a new one.")
        return value


class Needed(BaseModel):
    step: int


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"number": -4}, "-4 is not allowed. Use a number of at least 1."),
        ({"number": 10}, "10 is not allowed. Use a number below 10."),
        ({"number": "x"}, "'x' is not allowed. Use a whole number."),
        ({"number": None}, "null is not allowed. Use a whole number."),
        ({"number": True}, "true is not allowed. Use a whole number."),
        ({"number": [1]}, "A list is not allowed. Use a whole number."),
        ({"share": 0}, "0 is not allowed. Use a number above 0."),
        ({"share": float("inf")}, "inf is not allowed. Use a finite number."),
        ({"kind": "模"}, "'模' is not allowed. Use 'a' or 'b'."),
        ({"on": []}, "It is empty. Give at least 1."),
        ({"on": ["a", "b", "c"]}, "It has 3 entries. Give at most 2."),
        ({"on": "h200"}, "'h200' is not allowed. Use a list."),
        ({"name": "n" * 61}, "This text is not allowed. Use at most 60 characters."),
        ({"name": "taken"}, "'taken' is the name of another. Use a new one."),
        ({"password": "hunter2"}, "The value is not allowed. Use at most 3 characters."),
        ({"facts": []}, "A list is not allowed. Use a JSON object."),
        ({"nmuber": 1}, "There is no field 'nmuber' here."),
    ],
)
def test_a_sentence_names_the_value_and_what_is_allowed(body: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Body.model_validate(body)

    assert [sentence_of_error(dict(error)) for error in refused.value.errors()] == [says]


def test_a_field_that_is_missing_is_said_to_be() -> None:
    with pytest.raises(ValidationError) as refused:
        Needed.model_validate({})

    assert sentence_of_error(dict(refused.value.errors()[0])) == "This field is missing, and has no default."
