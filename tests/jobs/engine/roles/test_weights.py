"""Who has the devices when: the calls by which an engine and the policy's ranks take turns, in their order."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.engine.device import load_device
from jobs.engine.roles.shared_memory import SharedMemory, fillings, open_memory, unpacked
from jobs.engine.roles.weights import TakingTurns, WeightSync, weight_sync

METADATA = {"names": ["a", "b"], "dtype_names": ["float32", "bfloat16"], "shapes": [[2, 3], [5]]}


class RecordingWorker:
    """Writes down what it is asked for; lends the weights in two parts."""

    def __init__(self, role: str, rank: int, calls: list[str]) -> None:
        self.role, self.rank, self._calls, self._num_parts = role, rank, calls, 0

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Answer at once."""
        if method == "lend_weights":
            self._num_parts += 1
            if self._num_parts % 3 == 0:
                return None
            self._calls.append(f"{self.role}-{self.rank} lends")
            return {"names": ["a"], "ipc_handles": {f"gpu-{self.rank}": self._num_parts}}
        if method == "weight_metadata":
            return METADATA
        shown = [str(a["ipc_handles"]) if isinstance(a, dict) else str(a) for a in arguments]
        shown += [f"{name}={value}" for name, value in options.items() if name not in ("step", "phase")]
        self._calls.append(" ".join([f"{self.role}-{self.rank}", method, *shown]))
        return None


@pytest.fixture
def calls() -> list[str]:
    return []


def workers_of(calls: list[str], *, ranks: int, engines: int, share_devices: bool = True) -> Any:
    """A worker group as far as turns know it."""
    return SimpleNamespace(
        policies=[RecordingWorker("policy", rank, calls) for rank in range(ranks)],
        generators=[RecordingWorker("vllm", rank, calls) for rank in range(engines)],
        share_devices=share_devices,
        gather=list,
    )


def test_a_step_gives_the_devices_to_the_engine_and_back(calls: list[str]) -> None:
    turns = weight_sync(workers_of(calls, ranks=1, engines=1))
    assert isinstance(turns, TakingTurns)
    turns.connect()
    assert calls == ["policy-0 open_lender is_source=True", "vllm-0 join_shared 0"]
    assert turns.num_bytes == 6 * 4 + 5 * 2
    calls.clear()

    turns.sync(step=0)

    assert calls == [
        "policy-0 states_off",
        "vllm-0 wake_weights",
        "vllm-0 start_update",
        "policy-0 lends",
        "vllm-0 read_update {'gpu-0': 1}",
        "policy-0 lends",
        "vllm-0 read_update {'gpu-0': 2}",
        "vllm-0 finish_update",
        "policy-0 end_lending",
        "policy-0 weights_off",
        "vllm-0 wake_cache",
    ]
    assert turns.is_turn("vllm")
    calls.clear()

    turns.engines_turn(step=1)  # it has it
    assert calls == []
    turns.policies_turn(step=1, is_renewed=True)

    assert calls == ["vllm-0 sleep 2", "policy-0 back"]
    assert turns.is_turn("policy")


def test_weights_that_stay_the_same_wait_on_the_host_and_are_not_sent_again(calls: list[str]) -> None:
    turns = TakingTurns(workers_of(calls, ranks=1, engines=1))
    turns.sync(step=0)
    calls.clear()

    turns.policies_turn(step=0, is_renewed=False)  # for a checkpoint
    turns.engines_turn(step=1)

    assert calls == [
        "vllm-0 sleep 1",
        "policy-0 back",
        "policy-0 states_off",
        "vllm-0 wake_weights",
        "policy-0 weights_off",
        "vllm-0 wake_cache",
    ]


def test_weights_that_were_dropped_are_sent_again(calls: list[str]) -> None:
    """As of a step that was dropped because the run was stopped: nothing was learned, and a probe is still drawn."""
    turns = TakingTurns(workers_of(calls, ranks=1, engines=1))
    turns.sync(step=0)
    turns.policies_turn(step=1, is_renewed=True)
    calls.clear()

    turns.engines_turn(step=1)

    assert "vllm-0 finish_update" in calls


def test_a_sync_in_the_engines_turn_lets_it_sleep_first(calls: list[str]) -> None:
    turns = TakingTurns(workers_of(calls, ranks=1, engines=1))
    turns.sync(step=0)
    calls.clear()

    turns.sync(step=1)

    assert calls[:3] == ["vllm-0 sleep 2", "policy-0 back", "policy-0 states_off"]
    assert "vllm-0 finish_update" in calls


def test_each_engine_reads_from_the_ranks_whose_devices_it_shares(calls: list[str]) -> None:
    turns = TakingTurns(workers_of(calls, ranks=4, engines=2))
    turns.connect()

    assert calls == [
        "policy-0 open_lender is_source=True",
        "policy-1 open_lender is_source=False",
        "policy-2 open_lender is_source=True",
        "policy-3 open_lender is_source=False",
        "vllm-0 join_shared 0",
        "vllm-1 join_shared 2",
    ]
    turns.sync(step=0)
    read = "read_update {'gpu-0': 1, 'gpu-1': 1, 'gpu-2': 1, 'gpu-3': 1}"
    assert {f"vllm-0 {read}", f"vllm-1 {read}"} <= set(calls)


def test_engines_with_devices_of_their_own_take_no_turns(calls: list[str]) -> None:
    sync = weight_sync(workers_of(calls, ranks=1, engines=1, share_devices=False))

    assert type(sync) is WeightSync
    sync.engines_turn(step=1)
    sync.policies_turn(step=1, is_renewed=True)
    assert sync.is_turn("vllm")
    assert sync.is_turn("policy")
    assert calls == []
    assert weight_sync(workers_of(calls, ranks=1, engines=0, share_devices=False)) is None


@pytest.mark.parametrize("capacity", [24, 34, 1024])
def test_what_lies_in_shared_memory_is_read_as_it_was_written(capacity: int) -> None:
    weights = {
        "a": torch.arange(6.0).view(2, 3),
        "b": torch.arange(5, dtype=torch.bfloat16),
        "c": torch.arange(4.0).view(2, 2).t(),  # not contiguous
        "d": torch.tensor(7.0),
    }
    memory = SharedMemory(capacity)
    read: dict[str, torch.Tensor] = {}

    for filling in fillings(weights.items(), memory=memory, capacity=capacity):
        assert sum(filling["tensor_sizes"]) <= capacity
        read |= unpacked(SimpleNamespace(**filling), open_memory(memory.handle))

    assert list(read) == list(weights)
    for name, weight in weights.items():
        assert read[name].dtype == weight.dtype
        assert torch.equal(read[name], weight), name


def test_a_rank_that_nobody_reads_from_goes_through_the_weights_all_the_same() -> None:
    lender = load_device("cpu").open_lender(rank=1, is_source=False, capacity=32)
    gone_through: list[str] = []

    def weights() -> Any:
        for name in "abc":
            gone_through.append(name)
            yield name, torch.zeros(8)

    parts = list(lender.lend(weights()))

    assert gone_through == ["a", "b", "c"]
    assert [(part["names"], part["ipc_handles"]) for part in parts] == [(["a"], {}), (["b"], {}), (["c"], {})]
