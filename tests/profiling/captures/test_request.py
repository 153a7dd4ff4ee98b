"""What a `profile` command may ask for, and the sentence for what it may not."""

from typing import Any

import pytest

from profiling.captures.capture import CannotRecord, parse_request, within

WORKERS = {"policy": 2, "vllm": 1, "reference": 0}
GOOD = {"capture": "cap1", "tool": "torch", "first_step": 3, "num_steps": 2, "roles": [], "ranks": []}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tool": "perf"}, "There is no tool 'perf'. Use torch, nsys, stacks, memory, msprof or torch_pieces."),
        ({"tool": ""}, "There is no tool ''. Use torch, nsys, stacks, memory, msprof or torch_pieces."),
        (
            {"what": "colors"},
            "There is no 'colors' to see. Use timing, operators, kernels, memory, communication or stacks.",
        ),
        ({"what": ["kernels"]}, "There is no ['kernels'] to see. Use timing,"),
        ({"first_step": -1}, "first_step is -1. Use a step from 1, or 0 for the next one."),
        ({"first_step": True}, "first_step is True. Use a step from 1, or 0 for the next one."),
        ({"num_steps": 0}, "num_steps is 0. Use 1 to 100."),
        ({"roles": "policy"}, "roles is 'policy'. Use a list of roles, or [] for all."),
        ({"ranks": [-1]}, "ranks is [-1]. Use a list of ranks from 0, or [] for all."),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CannotRecord) as refused:
        parse_request(GOOD | change)

    assert str(refused.value).startswith(sentence)
    assert refused.value.capture == "cap1"


def test_the_tool_may_be_left_open_for_what_is_to_be_seen() -> None:
    assert (parse_request(GOOD).what, parse_request(GOOD).tool) == ("none", "torch")
    left_open = parse_request(GOOD | {"what": "kernels", "tool": ""})
    assert (left_open.what, left_open.tool) == ("kernels", "")


@pytest.mark.parametrize("capture", [None, "", "../../etc", "a b", "x" * 17])
def test_an_id_that_could_lead_elsewhere_is_refused(capture: Any) -> None:
    with pytest.raises(CannotRecord, match="is not the id of a capture") as refused:
        parse_request(GOOD | {"capture": capture})

    assert refused.value.capture == ""


@pytest.mark.parametrize(
    ("roles", "ranks", "workers"),
    [
        ([], [], ["policy-0", "policy-1", "vllm-0"]),
        (["policy"], [], ["policy-0", "policy-1"]),
        (["policy", "vllm"], [0], ["policy-0", "vllm-0"]),
        ([], [1], ["policy-1"]),
    ],
)
def test_roles_and_ranks_name_workers(roles: list[str], ranks: list[int], workers: list[str]) -> None:
    assert within(parse_request(GOOD | {"roles": roles, "ranks": ranks}), WORKERS) == workers


@pytest.mark.parametrize(
    ("roles", "ranks", "sentence"),
    [
        (["reference"], [], "This run has no role 'reference'. Use policy, vllm."),
        (["driver"], [], "The driver has no recording of its own; its phases are always told. Use policy, vllm."),
        (["vllm"], [1], "There is no rank 1 of vllm. Use 0 to 0."),
    ],
)
def test_a_worker_that_there_is_not_is_named(roles: list[str], ranks: list[int], sentence: str) -> None:
    with pytest.raises(CannotRecord) as refused:
        within(parse_request(GOOD | {"roles": roles, "ranks": ranks}), WORKERS)

    assert str(refused.value) == sentence


def test_what_the_end_of_a_run_cuts_short_says_so() -> None:
    request = parse_request(GOOD)

    assert request.steps == "steps 3 to 4"
    assert request.ending_at(3).steps == "step 3"
    assert request.ending_at(9) == request
