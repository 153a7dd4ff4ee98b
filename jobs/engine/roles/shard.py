"""The part of the training state that one policy rank holds, in one form under every ZeRO stage.

What is trained are tensors of the master weights' type: the parameters themselves (ZeRO-0 in float32), float32 copies
of them (ZeRO-0 in bfloat16), or this rank's partition of flat copies (ZeRO-1 to 3), which lie in host memory where the
optimizer is offloaded. The optimizer's tensors have the same layout and lie in the same place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jobs.engine.roles.parts import WEIGHTS, FlatSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """Elements [start, start + numel) of a flattened parameter: they are those of `trained` from `offset` on."""

    parameter: Any
    start: int
    numel: int
    trained: Tensor
    offset: int

    def overlap(self, piece: FlatSlice) -> tuple[int, int]:
        """Return the elements of the parameter that both hold: [low, high), empty if high <= low."""
        return max(self.start, piece.start), min(self.start + self.numel, piece.start + piece.numel)

    def within(self, whole: Tensor, low: int, high: int) -> Tensor:
        """Return the parameter's elements [low, high) of a tensor that is laid out as `trained`."""
        return whole.detach().view(-1)[self.offset + low - self.start : self.offset + high - self.start]


class Shard:
    """Read and write this rank's part of the state of a DeepSpeed engine."""

    def __init__(self, engine: Any, *, stage: int, rank: int) -> None:
        self._engine, self._stage, self._rank = engine, stage, rank
        self._optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
        self._fragments = fragments(engine, stage)

    def pieces(self) -> list[FlatSlice]:
        """Return what this rank saves: its fragments of weights and optimizer state; in ZeRO-0 rank 0 saves all."""
        if self._stage == 0 and self._rank > 0:
            return []
        return [
            FlatSlice(state=state, name=name, start=f.start, numel=f.numel)
            for name, f in self._fragments.items()
            for state in (WEIGHTS, *self._state_keys(f))
        ]

    def num_bytes(self) -> int:
        """Return the bytes of all `pieces`."""
        return sum(piece.numel * self._tensor_of(piece).element_size() for piece in self.pieces())

    def _tensor_of(self, piece: FlatSlice) -> Tensor:
        """Return the tensor that the elements of a piece of `pieces` lie in."""
        trained = self._fragments[piece.name].trained
        whole: Tensor = trained if piece.state == WEIGHTS else self._optimizer.state[trained][piece.state]
        return whole

    def _state_keys(self, fragment: Fragment) -> list[str]:
        held = self._optimizer.state.get(fragment.trained, {})
        return [
            key for key, value in held.items() if torch.is_tensor(value) and value.numel() == fragment.trained.numel()
        ]

    def read(self, piece: FlatSlice) -> Tensor:
        """Return a copy of the elements of a piece of `pieces`, on the CPU, in the type they are kept in: [numel]."""
        fragment = self._fragments[piece.name]
        return fragment.within(self._tensor_of(piece), piece.start, piece.start + piece.numel).to("cpu", copy=True)

    def has_finite_weights(self) -> bool:
        """Return whether all elements of the weights that this rank trains are finite."""
        trained = {id(f.trained): f.trained for f in self._fragments.values()}
        return all(bool(torch.isfinite(tensor).all()) for tensor in trained.values())

    def wanted(self, states: Sequence[str]) -> list[FlatSlice]:
        """Return what this rank needs to go on: whole weights where it computes with all of them, else its
        fragments.
        """
        slices = []
        for name, parameter in _trained(self._engine):
            fragment = self._fragments.get(name)
            if self._stage < 3:
                slices.append(FlatSlice(state=WEIGHTS, name=name, start=0, numel=parameter.numel()))
            if fragment is not None:
                slices += [
                    FlatSlice(state=state, name=name, start=fragment.start, numel=fragment.numel)
                    for state in states
                    if state != WEIGHTS or self._stage == 3
                ]
        return slices

    @torch.no_grad()
    def write(self, piece: FlatSlice, values: Tensor) -> None:
        """Put the elements of a piece, [numel], where this rank holds them."""
        fragment = self._fragments.get(piece.name)
        if fragment is not None:
            low, high = fragment.overlap(piece)
            if low < high:
                whole = fragment.trained if piece.state == WEIGHTS else self._state_tensor(fragment, piece.state)
                fragment.within(whole, low, high).copy_(values[low - piece.start : high - piece.start])
        if piece.state == WEIGHTS:
            self._write_used(piece, values, fragment)

    def _write_used(self, piece: FlatSlice, values: Tensor, fragment: Fragment | None) -> None:
        """Put weights into the tensors that the forward pass uses, in their own precision."""
        if self._stage == 3:
            assert fragment is not None
            begin = piece.start - fragment.start
            fragment.parameter.ds_tensor.data.view(-1)[begin : begin + piece.numel].copy_(values)
        else:
            parameter = self._engine.module.get_parameter(piece.name)
            parameter.data.view(-1)[piece.start : piece.start + piece.numel].copy_(values)

    def _state_tensor(self, fragment: Fragment, key: str) -> Tensor:
        """Return the optimizer's tensor of that key; before the first optimizer step there is none yet."""
        held = self._optimizer.state[fragment.trained]
        if key not in held:
            held[key] = torch.zeros_like(fragment.trained, memory_format=torch.preserve_format).detach()
        return held[key]

    def optimizer_step(self) -> int:
        """Return how many steps the optimizer has taken."""
        steps = [held["step"] for held in self._optimizer.state.values() if "step" in held]
        return int(steps[0]) if steps else 0

    def begin_load(self) -> None:
        """Get ready for `write`. A collective in ZeRO-3, which lets go of gathered weights."""
        if self._stage == 3:
            self._engine.optimizer.checkpoint_event_prologue()

    def finish_load(self, optimizer_step: int) -> None:
        """Make what was written take effect. A collective in ZeRO-3, which gathers the small weights it keeps whole."""
        for fragment in self._fragments.values():  # a fused optimizer counts on the device of what it trains
            steps = torch.tensor(float(optimizer_step), device=fragment.trained.device)
            self._optimizer.state[fragment.trained]["step"] = steps
        if self._stage == 3:
            self._engine.optimizer.checkpoint_event_epilogue()


def _trained(engine: Any) -> list[tuple[str, Any]]:
    return [(name, p) for name, p in engine.module.named_parameters() if p.requires_grad]


def fragments(engine: Any, stage: int) -> dict[str, Fragment]:
    """Return this rank's fragment of each trained parameter by name; parameters it holds nothing of are left out."""
    find = {0: _whole_ones, 3: _of_partitioned}.get(stage, _of_mapped)
    return {name: f for name, f in find(engine) if f.numel > 0}


def _whole_ones(engine: Any) -> list[tuple[str, Fragment]]:
    """ZeRO-0: the parameter itself, or the float32 copy that DeepSpeed trains in its place."""
    wrapper = engine.optimizer
    copies = {
        id(used): copy
        for used_ones, copied in zip(
            getattr(wrapper, "fp16_groups", ()), getattr(wrapper, "fp32_groups", ()), strict=True
        )
        for used, copy in zip(used_ones, copied, strict=True)
    }
    return [
        (name, Fragment(parameter=p, start=0, numel=p.numel(), trained=copies.get(id(p), p), offset=0))
        for name, p in _trained(engine)
    ]


def _of_mapped(engine: Any) -> list[tuple[str, Fragment]]:
    """ZeRO-1 and 2: DeepSpeed's own map from a parameter to its place in this rank's flat partition."""
    flats = {
        flat.untyped_storage().data_ptr(): flat
        for group in engine.optimizer.optimizer.param_groups
        for flat in group["params"]
    }
    named = []
    for name, p in _trained(engine):
        mapping = p._hp_mapping
        if mapping is None:
            continue
        here, there = mapping.lp_fragment_address, mapping.get_hp_fragment_address()
        flat = flats[mapping.get_hp_fragment().untyped_storage().data_ptr()]
        named.append(
            (name, Fragment(parameter=p, start=here.start, numel=here.numel, trained=flat, offset=there.start))
        )
    return named


def _of_partitioned(engine: Any) -> list[tuple[str, Fragment]]:
    """ZeRO-3: each parameter is cut into equal parts, the last one padded."""
    zero = engine.optimizer
    named = []
    for name, p in _trained(engine):
        group, offset, size = zero.grad_position[zero.get_param_id(p)]
        start = size * zero._get_param_partition_rank(p)
        numel = max(0, min(size, p.ds_numel - start))
        flat = zero.fp32_partitioned_groups_flat[group]
        named.append((name, Fragment(parameter=p, start=start, numel=numel, trained=flat, offset=offset)))
    return named
