"""The model that learns what reward is still to come after each token. Runs inside an actor of its own, or in the
policy's ranks beside the policy.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import ModelSource, RunSpec
from jobs.engine.algorithm import Counts, Loss
from jobs.engine.batch import Batch
from jobs.engine.data.model_files import BUNDLED, count_parameters, find_model, model_folder, read_json
from jobs.engine.optimizer_knobs import OF_CRITIC
from jobs.engine.problem import RunProblem
from jobs.engine.roles.adapters import AdapterConfig
from jobs.engine.roles.state_moves import StateMoves
from jobs.engine.roles.trained_model import TrainedModel
from jobs.engine.roles.value_head import FIELD, load_value_model

POLICY = "policy"
"""What `models.critic_path` calls the policy's own model."""


class Critic(TrainedModel):
    """A rank of the critic."""

    role = "critic"
    optimizer_knobs = OF_CRITIC
    stage_of = "memory.used_critic_zero_stage"

    def __init__(self, *, spec: RunSpec, **place: Any) -> None:
        super().__init__(spec=spec, **place)
        self._cut = replace(self._cut, is_packed=self._engine.module.is_packed)
        self._moves = StateMoves(
            self._engine,
            stage=self._stage,
            is_pinned=self._device.gives_back_memory,
            is_on_host=bool(spec.knob("memory.adam_offload")),
        )

    def _load(self) -> torch.nn.Module:
        model: torch.nn.Module = load_value_model(
            critic_folder(self._spec),
            precision=str(self._spec.knob("memory.precision")),
            is_packed=self._cut.is_packed,
            sharding=self._sharding(),
        )
        return model

    def _wanted_adapters(self) -> AdapterConfig | None:
        return AdapterConfig.of(self._spec)

    def _loss(self, micro: Batch, counts: Counts) -> Loss:
        assert self._algorithm.value_loss is not None
        values_BL = self._engine(micro.tokens_BL, micro.mask_BL, micro.lengths_B)
        return self._algorithm.value_loss(micro, values_BL, self._spec, counts)

    @torch.no_grad()
    def values(self, batch: Batch) -> Tensor:
        """Return the value of each counted token with the weights of now, 0 elsewhere, on the CPU: [B, L]."""
        is_divided = self._stage == 3  # then all ranks gather weights as often
        micros = self._micro_batches(batch) if is_divided else self._cut.rows(batch.lengths_B)
        model = self._engine if is_divided else self._engine.module
        values_BL = torch.zeros(batch.tokens_BL.shape)
        for rows in micros:
            here = batch.rows(rows).to(self._device.torch_device())
            part_bL = model(here.tokens_BL, here.mask_BL, here.lengths_B)
            values_BL[rows, : part_bL.shape[1]] = part_bL.cpu()
        return values_BL

    def off(self) -> None:
        """Leave the device to a rollout engine, where it has room for one only."""
        if self._device.gives_back_memory:
            self._moves.states_off()
            self._moves.weights_off()

    def back(self) -> None:
        """Take the device again."""
        if self._device.gives_back_memory:
            self._moves.back()


def critic_folder(spec: RunSpec) -> Path:
    """Return the folder that the critic starts from: the policy's, or that of the model that `models.critic_path`
    names, a folder, a bundled model or one of the hub.

    Raises: RunProblem naming `models.critic_path` if there is none, or its vocabulary is not the policy's.
    """
    name = spec.knob("models.critic_path")
    policy = model_folder(spec.model)
    if name == POLICY:
        return policy
    kind: Literal["path", "bundled", "hub"] = "hub"
    if Path(str(name)).expanduser().is_dir():
        kind = "path"
    elif (BUNDLED / str(name) / "config.json").is_file():
        kind = "bundled"
    try:
        folder = find_model(ModelSource(kind=kind, id=str(name)))
        count_parameters(folder, str(name))
    except RunProblem as problem:
        raise RunProblem(FIELD, problem.message) from None
    sizes = [_vocabulary(read_json(each / "config.json", field=FIELD)) for each in (folder, policy)]
    if sizes[0] != sizes[1]:
        raise RunProblem(
            FIELD,
            f"The critic {name!r} has a vocabulary of {sizes[0]} tokens and the policy one of {sizes[1]}. Use a critic "
            "with the policy's tokenizer.",
        )
    return folder


def _vocabulary(config: dict[str, object]) -> object:
    inner = config.get("text_config")
    return (inner if isinstance(inner, dict) else config).get("vocab_size")
