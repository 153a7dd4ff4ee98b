"""What a run costs: its steps' seconds, device hours, and money at the price of a device hour."""

from jobs.planner.constant import Constants
from jobs.planner.job import Fleet
from jobs.planner.result import Cost, Interval


def cost_of(step: Interval, fleet: Fleet, num_steps: int, constants: Constants) -> Cost:
    """Return the cost of `num_steps` steps (0: unknown) on all devices of a fleet.

    Checkpoints, evaluation and restarts add a share of the run; storage and hosts are not priced.
    """
    if not num_steps:
        return Cost(seconds=None, device_hours=None, money=None, currency=fleet.currency)
    seconds = step.scaled(num_steps / (1 - constants["speed.restart_share"]))
    hours = seconds.scaled(fleet.num_devices / 3600)
    money = None if fleet.price is None else hours.scaled(fleet.price)
    return Cost(seconds=seconds, device_hours=hours, money=money, currency=fleet.currency)
