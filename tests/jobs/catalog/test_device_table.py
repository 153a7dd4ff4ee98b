"""Questions about hardware are answered from the table, and from nothing else."""

import re
from pathlib import Path

import pytest

from jobs.catalog.device_table import EVIDENCE, device_table, rows
from jobs.catalog.knob import knobs


def ids(**question: object) -> list[str]:
    return [row.id for row in rows(**question)]  # type: ignore[arg-type]  # the questions of one test differ in kind


def test_every_row_says_whose_it_is_and_sets_knobs_to_what_they_take() -> None:
    for row in device_table().values():
        assert row.source
        assert row.evidence in EVIDENCE
        assert bool(row.num_devices) == bool(row.model) == bool(row.settings)
        for knob_id, value in row.settings.items():
            assert knobs()[knob_id].check(value) == value, f"{row.id} {knob_id}"


def test_the_answer_comes_from_the_table_not_from_an_illustration() -> None:
    found = rows(model_billion=70, device="H100")

    assert [(row.method, row.num_devices) for row in found] == [("GRPO-LoRA", 8)]  # it is often told as 4 x H100


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ({"model_billion": 7.6, "method": "grpo"}, ["H04"]),  # Qwen2.5-7B is of the class of 7
        ({"model_billion": 8.2, "method": "GRPO"}, ["H06"]),  # what trains 14 billion trains 8
        ({"model_billion": 72.7, "method": "GRPO"}, ["H10", "H11"]),
        ({"model_billion": 405}, []),  # nobody reported it
        ({"model_billion": 671}, ["H15"]),
        ({"model_billion": 300}, []),  # a mixture of 671 says nothing of it
        ({"model_billion": 0.5, "method": "PPO"}, ["H19a"]),
        ({"model_billion": 7, "device": "TPU"}, []),
        ({"method": "GRPO", "device": "h800"}, ["H04", "H06", "H11"]),
    ],
)
def test_a_question_is_answered_by_the_smallest_class_that_is_no_smaller(
    question: dict[str, object], wanted: list[str]
) -> None:
    assert ids(**question) == wanted


def test_a_place_without_an_entry_is_no_answer() -> None:
    assert device_table()["H13"].num_devices == 0
    assert "H13" not in ids()
    assert len(ids()) == sum(row.num_devices > 0 for row in device_table().values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[a]\nsize = 1\nevidence = "run"\nsource = "s"\ncolour = 1', "a: a row has no key 'colour'"),
        ('[a]\nsize = 1\nevidence = "rumor"\nsource = "s"', "a: 'rumor' is no grade of evidence"),
    ],
)
def test_a_bad_row_is_named(text: str, says: str, other_catalogue: Path) -> None:
    (other_catalogue / "device_table.toml").write_text(text)

    with pytest.raises(ValueError, match=re.escape(says)):
        device_table.__wrapped__()
