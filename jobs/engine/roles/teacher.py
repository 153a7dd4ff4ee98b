"""The frozen model that a student learns from: what it expects in the place of each counted token.

Runs inside an actor (actor.py), which imports it by name, or beside the policy in its rank.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.teacher_files import FIELD, num_outputs, teacher_folder
from jobs.engine.device import load_device
from jobs.engine.distillation import TopTokens
from jobs.engine.micro_batches import Cut
from jobs.engine.problem import RunProblem
from jobs.engine.roles.language_model import load_model, memory_before_model, temperature_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherScores:
    """Of each counted token's place the teacher's likeliest tokens [B, L, K], their log-probabilities and that of all
    others [B, L, K + 1], and the entropy of its whole distribution [B, L]; 0 elsewhere. On the CPU."""

    ids_BLK: Tensor
    logprobs_BLK: Tensor
    entropies_BL: Tensor


class Teacher:
    """A whole copy of the teacher, for scoring alone, at the temperature of the student's samples."""

    def __init__(self, *, spec: RunSpec, device: str) -> None:
        self._device = load_device(device)
        self._device.prepare_trainer()
        self._baseline = memory_before_model()
        self._temperature = temperature_of(spec)
        folder, student = teacher_folder(spec), model_folder(spec.model, with_weights=False)
        below = min(num_outputs(folder, field=FIELD), num_outputs(student, field="model.id"))
        self._asked = TopTokens(count=min(spec.int_knob("algorithm.distillation_top_k"), below), below=below)
        self._cut = Cut.of(spec)
        try:
            model = load_model(folder, precision=str(spec.knob("memory.precision")), is_packed=self._cut.is_packed)
        except RunProblem as problem:
            raise RunProblem(FIELD, f"The teacher: {problem.message}") from problem
        self._cut = replace(self._cut, is_packed=bool(model.is_packed))
        self._model = model.to(self._device.torch_device()).eval().requires_grad_(requires_grad=False)
        self._num_bytes = sum(p.numel() * p.element_size() for p in self._model.parameters())

    def take_spec(self, spec: RunSpec) -> None:
        """Go on with these knobs, of which some were changed while the run trains."""
        self._temperature = temperature_of(spec)

    @torch.no_grad()
    def scores(self, batch: Batch) -> TeacherScores:
        """Return what the teacher says of the batch."""
        shape, count = batch.tokens_BL.shape, self._asked.count
        ids_BLK = torch.zeros((*shape, count), dtype=torch.int32)
        logprobs_BLK, entropies_BL = torch.zeros((*shape, count + 1)), torch.zeros(shape)
        for rows in self._cut.rows(batch.lengths_B):
            here = batch.rows(rows).to(self._device.torch_device())
            _, entropies_bL, ids_bLK, logprobs_bLK = self._model(
                here.tokens_BL, here.mask_BL, self._temperature, here.lengths_B, self._asked
            )
            width = entropies_bL.shape[1]
            ids_BLK[rows, :width], logprobs_BLK[rows, :width] = ids_bLK.cpu(), logprobs_bLK.cpu()
            entropies_BL[rows, :width] = entropies_bL.cpu()
        return TeacherScores(ids_BLK=ids_BLK, logprobs_BLK=logprobs_BLK, entropies_BL=entropies_BL)

    def to(self, place: str) -> None:
        """Move the weights to a device, or to the host where another model needs the room."""
        self._model.to(place)

    def readings(self) -> dict[str, float]:
        """Return measured bytes of model state."""
        return {"parameter_bytes": float(self._num_bytes), **self._baseline, **self._device.memory_readings()}
