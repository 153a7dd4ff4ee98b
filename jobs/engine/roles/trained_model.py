"""One rank of a model that is trained: DeepSpeed, ZeRO 0 to 3. A role says which model, and what it learns.

Runs inside an actor, which imports the role by name.
"""

import contextlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine import deepspeed_start
from jobs.engine.algorithm import Counts, Loss
from jobs.engine.batch import Batch
from jobs.engine.device import Device, load_device
from jobs.engine.logprob_gap import GapSums
from jobs.engine.micro_batches import Cut
from jobs.engine.optimizer_knobs import OF_POLICY, OptimizerKnobs
from jobs.engine.own_algorithm import algorithm_of
from jobs.engine.roles.adapters import (
    AdapterConfig,
    TrainedShare,
    WholeWeight,
    add_adapters,
    dropping,
    linear_layers,
    whole_weights,
)
from jobs.engine.roles.compiled_layers import compile_layers
from jobs.engine.roles.four_bit import pack_base
from jobs.engine.roles.language_model import buckets, gathered, memory_before_model
from jobs.engine.roles.model_state import gradient_bytes, gradient_norm, optimizer_bytes, parameter_bytes
from jobs.engine.roles.part_writer import PartWriter
from jobs.engine.roles.parts import FlatSlice, PartFile, Parts, batches, part_bytes, part_name, write_part
from jobs.engine.roles.shard import Shard
from jobs.engine.roles.sharded_load import divided
from profiling.profile import mark

GATHER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a rank says of one optimizer step.

    `shares`: its shares of the metrics' means, by canonical name; those of all ranks add up. The others are the same on
    each rank: the norm of the whole gradient, inf if it is not finite, and whether the step was skipped for it. `gap`
    has the rank's part of what the rollout engine's log-probabilities differ from those of this forward pass, where no
    other pass came before.
    """

    shares: Mapping[str, float]
    grad_norm: float
    is_skipped: bool
    gap: GapSums | None = None


class TrainedModel(ABC):
    """A rank: learns and saves. All ranks of a role must make the same calls in the same order."""

    role: ClassVar[str]
    """In the table of roles."""

    optimizer_knobs: ClassVar[OptimizerKnobs] = OF_POLICY

    stage_of: ClassVar[str] = "memory.used_zero_stage"
    """The derived quantity that is its ZeRO stage."""

    def __init__(self, *, spec: RunSpec, rank: int, world_size: int, host: str, port: int, device: str) -> None:
        self._spec, self._rank = spec, rank
        self._device: Device = load_device(device)
        self._device.prepare_trainer()
        self._algorithm = algorithm_of(spec)
        self._stage = int(DERIVED[self.stage_of](spec))
        self._cut = Cut.of(spec)
        self._gradient_bytes = 0
        self._adapters = self._wanted_adapters()
        self._engine = self._make_engine(world_size, host, port)
        self._shard = Shard(self._engine, stage=self._stage, rank=rank)
        self._writer = PartWriter(rank)

    @abstractmethod
    def _load(self) -> torch.nn.Module:
        """Return the model to train, in the run's precision on the CPU, made inside `_sharding`.

        In bfloat16 DeepSpeed makes the float32 master weights of what it is given, so that more would only be read.
        """

    def _wanted_adapters(self) -> AdapterConfig | None:
        """Return the adapters that are trained in place of the weights of this role; None trains all of them."""
        return None

    @abstractmethod
    def _loss(self, micro: Batch, counts: Counts) -> Loss:
        """Return the algorithm's loss of a micro-batch on the device, by a forward pass of the model."""

    def _make_engine(self, world_size: int, host: str, port: int) -> Any:
        import deepspeed

        deepspeed_start.spare()
        os.environ.update(
            {
                "MASTER_ADDR": host,
                "MASTER_PORT": str(port),
                "RANK": str(self._rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_RANK": "0",
            }
        )
        torch.manual_seed(self._spec.int_knob("train.seed"))
        deepspeed.init_distributed(
            dist_backend=self._device.collective_backend,
            auto_mpi_discovery=False,
            rank=self._rank,
            world_size=world_size,
            verbose=False,
        )
        self._baseline = memory_before_model()
        model: Any = self._load()
        if self._adapters is not None:
            pack_base(model, linear_layers(model), self._spec, device=self._device.torch_device())
            seed, base = self._spec.int_knob("train.seed"), self._spec.model.id
            add_adapters(model, self._adapters, seed=seed, base=base)
        if bool(self._spec.knob("memory.gradient_checkpointing")):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
        if bool(self._spec.knob("kernels.compile_layers")) and self._device.compiles_layers:
            compile_layers(model)
        if bool(self._spec.knob("memory.adam_offload")):
            self._device.prepare_host_optimizer(world_size)
        engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=adamw(model, self._spec, knobs=self.optimizer_knobs),
            config=self._config(world_size),
        )
        return engine

    def _config(self, world_size: int) -> dict[str, object]:
        return deepspeed_config(
            self._spec,
            world_size,
            stage=self._stage,
            max_grad_norm=self._spec.float_knob(self.optimizer_knobs.max_grad_norm),
            pins_memory=self._device.pins_memory,
        )

    def _sharding(self) -> contextlib.AbstractContextManager[None] | None:
        """Return what `_load` makes the model in: in ZeRO-3 it is divided as it is read."""
        import torch.distributed as dist

        if self._stage < 3:
            return None
        return divided(self._config(dist.get_world_size()), rank=self._rank)

    # -- learning --

    def take_spec(self, spec: RunSpec) -> None:
        """Go on with these knobs, of which some were changed while the run trains."""
        self._spec = spec

    def update(self, batches: list[Batch], counts: list[Counts], learning_rate: float) -> list[Update]:
        """Take one optimizer step per batch, with the `counts` of the whole batch of each step.

        A step whose gradient is not finite is skipped, in every ZeRO stage: weights and optimizer stay as they are.
        """
        updates = []
        for batch, count in zip(batches, counts, strict=True):
            with dropping(self._engine.module, self._adapters, seed=self._dropout_seed()):
                updates.append(self._step(batch, count, learning_rate))
        return updates

    def _dropout_seed(self) -> int:
        """Return what adapters draw from in the next optimizer step, which a resumed run takes alike."""
        if self._adapters is None or not self._adapters.dropout:
            return 0
        return hash((self._spec.int_knob("train.seed"), self.optimizer_step(), self._rank)) & 0xFFFFFFFF

    def _step(self, batch: Batch, counts: Counts, learning_rate: float) -> Update:
        engine = self._engine
        for group in engine.optimizer.param_groups:
            group["lr"] = learning_rate
        shares: dict[str, Tensor] = {}
        micros = self._micro_batches(batch)
        for i, rows in enumerate(micros):
            engine.set_gradient_accumulation_boundary(i == len(micros) - 1)
            here = batch.rows(rows).to(self._device.torch_device())
            with mark("update", name="forward"):
                loss, parts = self._loss(here, counts)
            for name, value in parts.items():
                shares[name] = shares[name] + value if name in shares else value
            with mark("update", name="backward"):
                # The loss is already the share of the whole batch's mean; DeepSpeed averages over ranks: undo it.
                engine.backward(loss * engine.world_size, scale_wrt_gas=False)
        self._gradient_bytes = gradient_bytes(engine)
        with mark("update", name="optimizer"):
            norm, is_skipped = self._take_step()
        return Update(
            shares={name: float(value) for name, value in shares.items()},
            grad_norm=norm,
            is_skipped=is_skipped,
            gap=self._take_gap(),
        )

    def _micro_batches(self, batch: Batch) -> list[Tensor]:
        """Return which sequences this rank takes together. All ranks take as many micro-batches, so each must ask."""
        micros = self._cut.rows(batch.lengths_B)
        if self._cut.max_tokens is None or self._engine.world_size == 1:
            return micros
        most = torch.tensor(len(micros), device=self._device.torch_device())
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        return self._cut.rows(batch.lengths_B, at_least=int(most))

    def _take_gap(self) -> GapSums | None:
        """Return what was measured of the rollout engine in the step's forward passes; None without an engine."""
        return None

    def _take_step(self) -> tuple[float, bool]:
        """Step the optimizer unless the gradient is not finite; return the gradient's norm, and whether it skipped."""
        engine = self._engine
        if self._stage == 0:  # the optimizer is torch's own here, which would put NaN into every weight
            norm = gradient_norm(engine)
            if not math.isfinite(norm):
                engine.zero_grad()
                return math.inf, True
            engine.step()
            return norm, False
        before = engine.skipped_steps  # ZeRO looks by itself
        engine.step()
        is_skipped = engine.skipped_steps > before
        if is_skipped:
            self._forget_gradients()
        return math.inf if is_skipped else float(engine.get_global_grad_norm() or 0.0), is_skipped

    def _forget_gradients(self) -> None:
        """Drop the sums of a skipped step, to which ZeRO-2 with the optimizer on the host would add in bfloat16."""
        if self._stage == 2:
            sums = self._engine.optimizer.averaged_gradients
            sums.update(dict.fromkeys(sums))

    def has_finite_weights(self) -> bool:
        """Return whether every weight that this rank trains is finite."""
        return self._shard.has_finite_weights()

    # -- weights --

    def _whole_weights(self) -> list[WholeWeight]:
        return whole_weights(self._engine.module)

    def _weights(
        self, positions: list[int] | None = None, limit_bytes: int = GATHER_BYTES
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, whole weight, its adapter added) bucket by bucket, so that ZeRO-3 never holds more than one
        beside its shards.
        """
        whole = self._whole_weights()
        chosen = range(len(whole)) if positions is None else positions
        for run in buckets([whole[i].num_bytes for i in chosen], limit_bytes):
            members = [whole[chosen[k]] for k in run]
            with gathered([p for w in members for p in w.parameters], is_sharded=self._stage == 3):
                for member in members:
                    yield member.name, member.value()

    def weight_metadata(self) -> dict[str, list[Any]]:
        """Return names, dtype names and shapes of what `send_weights` sends, in order."""
        whole = self._whole_weights()
        return {
            "names": [w.name for w in whole],
            "dtype_names": [str(w.dtype).removeprefix("torch.") for w in whole],
            "shapes": [list(w.shape) for w in whole],
        }

    def trained_share(self) -> TrainedShare | None:
        """Return how much of the model is trained; None where all of it is."""
        return TrainedShare.of(self._engine.module)

    # -- state --

    def sees(self, folder: str, token: str) -> bool:
        """Return whether this rank's node has the driver's `folder`: whether the file `token` in it says `token`."""
        try:
            return (Path(folder) / "token").read_text(encoding="utf-8") == token
        except OSError:
            return False

    def save_parts(self, folder: str, limit_bytes: int) -> list[PartFile]:
        """Write this rank's training state into `folder` as files of at most about `limit_bytes`."""
        written: list[PartFile] = []
        while (data := self.state_part(len(written), limit_bytes)) is not None:
            written.append(write_part(Path(folder) / part_name(self._rank, len(written)), data))
        return written

    def begin_save(self, folder: str, limit_bytes: int) -> None:
        """Copy this rank's training state into host memory, and begin to write it as `save_parts` would."""
        groups = batches(self._shard.pieces(), limit_bytes=limit_bytes)
        self._writer.start(Path(folder), [{p.key: self._shard.read(p) for p in pieces} for pieces in groups])

    def saved_parts(self, *, waits: bool) -> list[PartFile] | None:
        """Return the files of `begin_save`; None while they are being written, unless it `waits`. Raises: OSError."""
        return self._writer.files(waits=waits)

    def state_metadata(self) -> dict[str, list[Any]]:
        """Return names and shapes of the parameters that are trained: those whose state checkpoints hold."""
        trained = [(name, p) for name, p in self._engine.module.named_parameters() if p.requires_grad]
        return {"names": [name for name, _ in trained], "shapes": [list(_shape(p)) for _, p in trained]}

    def state_bytes(self) -> int:
        """Return how large this rank's part of a checkpoint is, but for the files' headers."""
        return self._shard.num_bytes()

    def state_part(self, index: int, limit_bytes: int) -> bytes | None:
        """Return the content of part file `index`; None past the last."""
        parts = batches(self._shard.pieces(), limit_bytes=limit_bytes)
        return part_bytes({p.key: self._shard.read(p) for p in parts[index]}) if index < len(parts) else None

    def optimizer_step(self) -> int:
        """Return how many steps the optimizer has taken."""
        return self._shard.optimizer_step()

    def begin_load(self) -> None:
        """Get ready for new training state. A collective."""
        self._shard.begin_load()

    def wanted(self, states: list[str], limit_bytes: int) -> list[list[FlatSlice]]:
        """Return the pieces that this rank needs, in batches of at most `limit_bytes`."""
        return batches(self._shard.wanted(states), limit_bytes=limit_bytes)

    def take(self, pieces: list[FlatSlice], values: list[Tensor]) -> None:
        """Put the elements of pieces that the driver read into place."""
        for piece, elements in zip(pieces, values, strict=True):
            self._shard.write(piece, elements)

    def load_parts(self, folder: str, states: list[str], limit_bytes: int) -> None:
        """Read what this rank needs from the part files of `folder`, piece by piece. Raises: RunProblem."""
        parts = Parts(Path(folder))
        for pieces in self.wanted(states, limit_bytes):
            for piece in pieces:
                self._shard.write(piece, parts.read(piece))

    def finish_load(self, optimizer_step: int) -> None:
        """Go on from the state that was put into place. A collective."""
        self._shard.finish_load(optimizer_step)

    def readings(self) -> dict[str, float]:
        """Return measured bytes of model state on this rank (gradients: as of the last backward pass)."""
        return {
            "parameter_bytes": float(parameter_bytes(self._engine, self._stage)),
            "gradient_bytes": float(self._gradient_bytes),
            "optimizer_bytes": float(optimizer_bytes(self._engine)),
            **self._baseline,
            **self._device.memory_readings(),
        }

    def leave(self) -> None:
        """Let go of the model; the groups stay, for others in this process."""
        self._engine.destroy()

    def close(self) -> None:
        """Leave the groups in order; without it the interpreter's exit may abort."""
        import torch.distributed as dist

        self.leave()
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()


def num_dimensions(parameter: Any) -> int:
    return len(_shape(parameter))


def _shape(parameter: Any) -> tuple[int, ...]:
    return tuple(getattr(parameter, "ds_shape", None) or parameter.shape)


def adamw(model: torch.nn.Module, spec: RunSpec, *, knobs: OptimizerKnobs = OF_POLICY) -> torch.optim.AdamW:
    """Return torch's fused AdamW, which needs no compiler; vectors (norms and biases) are kept from weight decay."""
    decay = spec.float_knob(knobs.weight_decay)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if num_dimensions(p) > 1 or not decay], "weight_decay": decay}]
    if decay:
        groups.append({"params": [p for p in trained if num_dimensions(p) <= 1], "weight_decay": 0.0})
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=spec.float_knob(knobs.learning_rate),
        betas=(spec.float_knob(knobs.beta1), spec.float_knob(knobs.beta2)),
        eps=spec.float_knob(knobs.epsilon),
        fused=True,
    )


def deepspeed_config(
    spec: RunSpec, world_size: int, *, stage: int, max_grad_norm: float, pins_memory: bool = False
) -> dict[str, object]:
    """Return DeepSpeed's configuration of a trained role; `pins_memory`: page-lock what is kept in host memory."""
    per_update = int(DERIVED["batch.samples_per_update"](spec))
    by_tokens = bool(spec.knob("train.dynamic_batch"))  # as many micro-batches as it takes; each ends where we say
    micro = 1 if by_tokens else min(spec.int_knob("train.micro_batch_size"), per_update // world_size)
    num_micros = -(-(per_update // world_size) // micro)
    is_half = spec.knob("memory.precision") == "bfloat16"
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": num_micros,
        "zero_optimization": _zero_config(spec, stage=stage, pins_memory=pins_memory),
        "bf16": _bf16_config(spec),
        # Micro-batches are added up in float32: in bfloat16 the sum of many loses what each one adds.
        **({"data_types": {"grad_accum_dtype": "fp32"}} if is_half else {}),
        "gradient_clipping": max_grad_norm,
        # torch's own AdamW: DeepSpeed's are compiled on the spot.
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1 << 31,
    }


def _zero_config(spec: RunSpec, *, stage: int, pins_memory: bool) -> dict[str, object]:
    """Return what ZeRO divides, and what of it lies in host memory: https://www.deepspeed.ai/docs/config-json/."""
    config: dict[str, object] = {"stage": stage}
    host = {"device": "cpu", "pin_memory": pins_memory}
    if bool(spec.knob("memory.adam_offload")):
        config["offload_optimizer"] = host
        if stage == 3 and bool(spec.knob("memory.zero_param_offload")):
            config["offload_param"] = host
    return config


def _bf16_config(spec: RunSpec) -> dict[str, object]:
    """Return in which types weights, masters and moments are kept.

    Masters of bfloat16 alone would need DeepSpeed's own CPU Adam, which is compiled on the spot; with the moments in
    bfloat16 too, any optimizer does.
    """
    config: dict[str, object] = {"enabled": spec.knob("memory.precision") == "bfloat16"}
    if DERIVED["memory.used_master_precision"](spec) == "bfloat16":
        config |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    return config
