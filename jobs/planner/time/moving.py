"""Seconds in which models leave their devices for another phase and come back."""

from jobs.planner.constant import Constants
from jobs.planner.job import Job, Training
from jobs.planner.result import Interval, around
from jobs.planner.time.network import host_bandwidth
from jobs.planner.time.training import WIDEST


def moving_seconds(job: Job, constants: Constants) -> float:
    """Return seconds in which models leave the devices as engines get weights, and come back, and engines wake up."""
    if job.placement == "split" or job.engine is None:
        return 0.0
    weights, states, rate = _moved(job, job.policy, constants)
    if job.policy.offload.is_moved_by_phase:
        states = 0.0
    engine = job.engine
    woken = 0.0
    if engine.sleep_level:
        ranks = engine.tensor * engine.pipeline
        woken = constants.speed.wake_seconds
        woken += (engine.sleep_level == 1) * 2 * job.policy.model.parameters / ranks / rate
    return 2 * (weights + states) / rate + woken


def _moved(job: Job, training: Training, constants: Constants) -> tuple[float, float, float]:
    """Return bytes of a device's weights and optimizer states that are in host memory between phases, and the bytes/s
    at which all devices move theirs."""
    local = training.model.parameters / max(training.layout.num_devices, 1)
    offload, weights, states = training.offload, 0.0, 0.0
    if offload.params_between_phases:
        weights = local * training.weight_bytes
    if offload.optimizer_between_phases and training.method == "full":
        states = local * (8 + training.master_bytes * training.has_master) * (1 - offload.optimizer)
    rate = host_bandwidth(job.fleet, training.layout.num_devices) * constants.speed.move_rate_share
    return weights, states, rate


def visiting_seconds(job: Job, training: Training, constants: Constants, *, is_trained: bool) -> Interval:
    """Return seconds in which a phase brings a model to its devices and sends it back, where each phase does so: with
    its optimizer's states where it is trained."""
    if not training.offload.is_moved_by_phase:
        return Interval(low=0.0, middle=0.0, high=0.0)
    weights, states, rate = _moved(job, training, constants)
    return around(2 * (weights + is_trained * states) / rate, WIDEST)
