"""Kinds of hardware are asked side by side, each on its own, and compared as if they had been asked as one."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.utils.translation import get_language, override

from jobs.catalog.accelerator import Accelerator, find_accelerator
from jobs.planner.can_it_run.language_models import compare_hardware
from jobs.planner.can_it_run.verdict import HardwareOption
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.known import shape_of
from jobs.planning.hardware_options import hardware_options
from jobs.planning.search_pool import SearchPool

PRICES = {"h100-sxm": 3.0, "a100-80-sxm": 1.5}


def test_the_answer_and_its_order_are_those_of_one_question() -> None:
    kinds = [find_accelerator(name) for name in ("l4", "h100-sxm", "a100-80-sxm")]
    shape = shape_of("qwen2.5-7b")
    pool = SearchPool(2)
    try:
        found = hardware_options(pool.answer, compare_hardware, shape, kinds, "grpo", prices=PRICES)
    finally:
        pool.close()

    assert found == compare_hardware(shape, kinds, "grpo", prices=PRICES)
    assert len(found) == 3


def test_two_are_asked_at_the_same_time_and_in_the_language_of_the_caller() -> None:
    meet = threading.Barrier(2, timeout=60)
    languages = []

    def ask(function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> tuple[HardwareOption, ...]:
        assert function is compare_hardware
        meet.wait()
        languages.append(get_language())
        return ()

    with override("zh-hans"):
        assert hardware_options(ask, compare_hardware, None, [_h100(), _h100()], "grpo") == ()

    assert languages == ["zh-hans"] * 2


def test_one_more_kind_is_all_that_is_asked_anew() -> None:
    pool, asked = SearchPool(0), []

    def compare(_shape: object, kinds: list[Accelerator], *_more: object) -> tuple[HardwareOption, ...]:
        asked.append(kinds[0].id)
        return ()

    globals()["compare"] = compare
    compare.__qualname__ = "compare"  # functions are asked for by name
    hardware_options(pool.answer, compare, None, [_h100()], "grpo")
    hardware_options(pool.answer, compare, None, [_h100(), find_accelerator("l4")], "grpo")

    assert asked == ["h100-sxm", "l4"]


def test_what_one_of_them_refuses_is_refused() -> None:
    def ask(_function: object, _shape: object, kinds: list[Accelerator], *_more: object, **_named: object) -> Any:
        raise JobInvalid("on", f"{kinds[0].id}: no.")

    with pytest.raises(JobInvalid, match="h100-sxm: no"):
        hardware_options(ask, compare_hardware, None, [_h100(), find_accelerator("l4")], "grpo")


def _h100() -> Accelerator:
    return find_accelerator("h100-sxm")
