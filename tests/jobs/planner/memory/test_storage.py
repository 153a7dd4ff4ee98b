"""Bytes beside the devices: on disk, and in the memory of nodes."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.job import Engine, FrozenModel, Job, Layout, Offload
from jobs.planner.memory.phases import (
    checkpoint_bytes,
    export_bytes,
    host_bytes,
)
from jobs.planner.memory.storage import node_bytes
from tests.jobs.planner.hardware import H100, fleet
from tests.jobs.planner.trainings import training

K = shipped_constants()
GIB = 2**30


def test_checkpoints_hold_what_a_run_resumes_from_and_exports_the_weights() -> None:
    parameters = 8_030_261_248
    assert checkpoint_bytes(training()) == 14 * parameters
    sharded = training(weight_bytes=4.0, gradient_bytes=4.0, has_master=False)
    assert checkpoint_bytes(sharded) == 12 * parameters
    assert export_bytes(sharded) == 2 * parameters
    critic = training(objective="scalar")
    assert export_bytes(critic) == 2 * (parameters - 128_256 * 4096 + 4096)


def test_a_node_holds_what_leaves_its_devices() -> None:
    layout = Layout(num_devices=16, shards=3)
    away = Offload(params_between_phases=True, optimizer_between_phases=True)
    t = training(layout=layout, weight_bytes=4.0, gradient_bytes=4.0, has_master=False)
    model = t.model
    job = Job(algorithm="grpo", fleet=fleet(16), policy=t)
    processes = round(8 * K.memory.host_process_bytes)
    assert host_bytes(job, K) == processes
    moved = replace(job, policy=replace(t, offload=away))
    states = 8 * 12 * 8_030_261_248 / 16 * K.memory.host_pinned
    assert host_bytes(moved, K) == pytest.approx(processes + states, abs=8)
    beside = replace(job, policy=replace(t, is_saved_beside=True))
    assert host_bytes(beside, K) == pytest.approx(processes + states, abs=8)  # weights and two moments, of 4 bytes each
    reference = replace(job, frozen=(FrozenModel(role="reference", model=model, layout=layout, is_offloaded=True),))
    assert host_bytes(reference, K) == processes + 8 * 2 * 8_030_261_248 / 16
    sleeping = replace(job, engine=Engine(model=model, num_engines=8, tensor=2, sleep_level=1))
    assert host_bytes(sleeping, K) == pytest.approx(processes + 4 * 2 * 8_030_261_248, rel=0.01)
    assert host_bytes(replace(job, engine=Engine(model=model, tensor=2, sleep_level=2)), K) == processes


def test_megatron_gives_gradients_up_and_its_optimizer_on_the_host_has_copies_of_its_own() -> None:
    layout, parameters = Layout(num_devices=16, tensor=2, shards=1), 8_030_261_248
    policy = training(layout=layout, family="megatron", kernels="megatron", gradient_bytes=4.0)
    job = Job(algorithm="grpo", fleet=fleet(16), policy=policy)
    processes = 8 * K.memory.host_process_bytes

    def away(offload: Offload) -> float:
        return (host_bytes(replace(job, policy=replace(policy, offload=offload)), K) - processes) / K.memory.host_pinned

    # A node has 8 of 16 shares of the optimizer; weights are divided by 2 alone, and come to 4 times the model.
    states, weights = 12 * parameters * 8 / 16, 2 * parameters * 8 / 2
    assert away(Offload(optimizer_between_phases=True)) == pytest.approx(states, rel=1e-4)
    assert away(Offload(params_between_phases=True)) == pytest.approx(weights, rel=1e-4)  # no gradients
    assert away(Offload(optimizer=1.0)) == pytest.approx(states * 16 / 12, rel=1e-4)  # gradients of 4 bytes
    # slime copies a process as it is, and sends weights that have a copy of their own.
    whole = Offload(params_between_phases=True, copies_process=True)
    assert away(whole) == pytest.approx(weights * (1 + 1 + 4 / 2), rel=1e-4)


@pytest.mark.parametrize(("stage", "batches", "each"), [(3, 1, 12 + 2 + 4), (2, 1, 12 + 4), (2, 4, 12 + 2 + 4)])
def test_an_optimizer_of_deepspeed_on_the_host_has_gradients_of_its_own(stage: int, batches: int, each: int) -> None:
    offload = Offload(optimizer=1.0)
    layout = Layout(num_devices=8, shards=stage)  # type: ignore[arg-type]
    t = training(layout=layout, family="deepspeed", offload=offload, num_micro_batches=batches)
    moved = host_bytes(Job(algorithm="sft", fleet=fleet(8), policy=t), K) - 8 * K.memory.host_process_bytes
    assert moved == pytest.approx(each * 8_030_261_248 * K.memory.host_pinned, rel=1e-4)


def test_pools_that_fill_nodes_are_on_nodes_of_their_own() -> None:
    t = training(layout=Layout(num_devices=8, shards=3), family="deepspeed", offload=Offload(optimizer=1.0))
    alone = Job(algorithm="ppo", fleet=fleet(16), policy=t)
    apart = replace(alone, critic=t, critic_pool="critic")
    assert host_bytes(apart, K) == host_bytes(alone, K)
    processes = 8 * K.memory.host_process_bytes
    twice = processes + 2 * (host_bytes(alone, K) - processes)
    assert host_bytes(replace(alone, critic=t), K) == pytest.approx(twice, abs=2)
    half = replace(t, layout=Layout(num_devices=4, shards=3))  # both may share a node
    shared = Job(algorithm="ppo", fleet=fleet(8), policy=half, critic=half, critic_pool="critic")
    assert host_bytes(shared, K) == pytest.approx(twice, abs=2)


def test_host_memory_that_is_known_to_be_too_little_does_not_fit_and_what_is_unusual_is_tight() -> None:
    moved = Offload(params=True, optimizer=1.0)
    t = training(layout=Layout(num_devices=2, shards=3), family="deepspeed", offload=moved, checkpointing="full")
    job = Job(algorithm="sft", fleet=fleet(2), policy=t)
    needed = host_bytes(job, K)

    def verdict(host: int) -> str:
        return estimate(replace(job, fleet=replace(job.fleet, host_bytes=host))).verdict

    assert node_bytes(job.fleet, K) == 2 * 2 * H100.memory_bytes
    assert verdict(2 * needed) == verdict(0) == "fits"
    assert verdict(needed + GIB) == "tight"
    assert verdict(round(needed / 1.07)) == "tight"  # no more certain than bytes of a device are
    assert verdict(round(needed / 1.09)) == "no"
    less = replace(job.fleet, accelerator=replace(H100, memory_bytes=int(needed / 4.2)))
    short = estimate(replace(job, fleet=less))
    assert short.verdict == "tight"
    assert any("host memory" in note and "usual" in note for note in short.notes)
