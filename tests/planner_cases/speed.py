"""How long the layout search takes, on a published recipe with layouts enough."""

import time

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.recipe import recipes
from jobs.planner.job import Fleet
from jobs.planner.search import search
from tests.planner_cases.model import read_model

ESTIMATE_GOAL = 5e-3
SEARCH_GOAL = 1.0
RANKED = 1000

_RECIPE, _MODEL = "verl-grpo-qwen3-8b-throughput", "qwen3-8b"


def seconds_of_search() -> tuple[int, float]:
    """Return how many layouts of a GRPO run of an 8B model on 16 H100 were looked at and ranked, and the seconds."""
    spec = recipes()[_RECIPE].spec
    fleet = Fleet(accelerator=find_accelerator("h100-sxm"), num_devices=max(spec.num_workers, 16))
    shape, _ = read_model(_MODEL)
    search(spec, shape, fleet, most=10)  # what is read once per process is not the search's time
    began = time.perf_counter()
    found = search(spec, shape, fleet, most=RANKED)
    return found.considered - found.skipped, time.perf_counter() - began
