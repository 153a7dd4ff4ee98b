"""How long the layout search takes, on a published recipe with layouts enough, and a question of many devices: seconds
of a CPU, so that a busy machine does not count, and medians of a few."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.recipe import recipes
from jobs.planner.can_it_run.language_models import compare_hardware
from jobs.planner.job import Fleet
from jobs.planner.read.context import Models
from jobs.planner.search.layouts import search
from tests.planner_cases.model import read_model

ESTIMATE_GOAL = 5e-3
SEARCH_GOAL = 1.0
RANKED = 1000
CAN_GOAL = 1.0
_ROUNDS = 3
_ROOT = Path(__file__).parents[2]

_RECIPE, _MODEL = "verl-grpo-qwen3-8b-throughput", "qwen3-8b"
_LARGE, _METHOD = "qwen3-235b-a22b", "ppo"
_SIDE_BY_SIDE = ("h200-sxm", "h100-sxm", "a100-80-sxm", "l40s", "rtx-4090")


def seconds_of_search() -> tuple[int, float]:
    """Return how many layouts of a GRPO run of an 8B model on 16 H100 were looked at and ranked, and the seconds."""
    spec = recipes()[_RECIPE].spec
    fleet = Fleet(accelerator=find_accelerator("h100-sxm"), num_devices=max(spec.num_workers, 16))
    shape, _ = read_model(_MODEL)
    models = Models(policy=shape)
    search(spec, models, fleet, most=10)  # what is read once per process is not the search's time
    result = search(spec, models, fleet, most=RANKED)
    return result.considered - result.skipped, _median(lambda: search(spec, models, fleet, most=RANKED))


def seconds_of_can_it_run() -> tuple[str, float]:
    """Return a question of the largest kind on "Can it run?", and the seconds of its answer."""
    shape, _ = read_model(_LARGE)
    kinds = [find_accelerator(name) for name in _SIDE_BY_SIDE]
    compare_hardware(shape, kinds, "sft")  # what is read once per process is not the answer's time
    seconds = _median(lambda: compare_hardware(shape, kinds, _METHOD))
    return f"{_LARGE}, {_METHOD}, {len(kinds)} accelerators", seconds


def seconds_of_a_cold_process() -> tuple[str, float]:
    """Return the same kind of question as a command of its own, modules and catalogs read anew, and its seconds."""
    command = [sys.executable, "manage.py", "can_it_run", _LARGE, "--method", "grpo", "--on", *_SIDE_BY_SIDE]
    took = []
    for _ in range(_ROUNDS + 1):  # the first one writes bytecode and tables
        before = os.times()
        subprocess.run(command, cwd=_ROOT, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        took.append(used)
    return f"{_LARGE}, grpo, {len(_SIDE_BY_SIDE)} accelerators", statistics.median(took[1:])


def _median(function: Callable[[], object]) -> float:
    took = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        function()
        took.append(time.process_time() - began)
    return statistics.median(took)
