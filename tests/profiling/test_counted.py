"""One of something is said as one, and nothing else changes."""

import pytest

from profiling.counted import counted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Needs 1 GPUs, 0 of 2 are free; grpo holds 2", "Needs 1 GPU, 0 of 2 are free; grpo holds 2"),
        ("the cluster has 1 GPUs, 1 CPUs", "the cluster has 1 GPU, 1 CPU"),
        ("1 requests wait at policy 0", "1 request waits at policy 0"),
        ("(1 data-parallel ranks)", "(1 data-parallel rank)"),
        ("Clean-up checked: 1 processes left", "Clean-up checked: 1 process left"),
        ("1 ranges were never closed and are left out.", "1 range was never closed and is left out."),
        ("1 ends of ranges have no beginning.", "1 end of ranges has no beginning."),
        ("1 allocations, 1 launches, 1 entries", "1 allocation, 1 launch, 1 entry"),
        ("1 retries are asked for, and after no failure.", "1 retry is asked for, and after no failure."),
    ],
)
def test_one_of_something_is_one(text: str, said: str) -> None:
    assert counted(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "Needs 11 GPUs",
        "2.1 steps, 2,001 steps, 0.1 tokens",
        "GPU 1 runs at 300 MHz; step 1 samples; policy rank 1 requests it",
        "Use 1 to 8 samples.",
        "1 run reports more",
        "1 run is old and 3 are new",
        "需要 1 个 GPU",
    ],
)
def test_all_else_stays(text: str) -> None:
    assert counted(text) == text
