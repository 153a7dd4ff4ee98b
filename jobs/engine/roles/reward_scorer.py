"""A frozen reward model, which says of each completion what it is worth.

Runs inside an actor (actor.py), which imports it by name, or beside the policy in its rank.
"""

from dataclasses import replace

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from jobs.engine.data.reward_files import reward_field, reward_folder
from jobs.engine.device import load_device
from jobs.engine.micro_batches import Cut
from jobs.engine.roles.language_model import memory_before_model
from jobs.engine.roles.value_head import load_score_model, scored


class RewardScorer:
    """A whole copy of the reward model, for scoring alone."""

    def __init__(self, *, spec: RunSpec, device: str) -> None:
        self._device = load_device(device)
        self._device.prepare_trainer()
        self._baseline = memory_before_model()
        self._cut = Cut.of(spec)
        model = load_score_model(
            reward_folder(spec),
            precision=str(spec.knob("memory.precision")),
            is_packed=self._cut.is_packed,
            field=reward_field(spec),
            has_head=True,
        )
        self._cut = replace(self._cut, is_packed=bool(model.is_packed))
        self._model = model.to(self._device.torch_device()).eval().requires_grad_(requires_grad=False)
        self._num_bytes = sum(p.numel() * p.element_size() for p in self._model.parameters())
        self._is_off = False

    def take_spec(self, spec: RunSpec) -> None:
        """Go on with these knobs, none of which the reward model reads."""

    def scores(self, batch: Batch) -> Tensor:
        """Return the score of each sequence, on the CPU: [B]. While the device is another's the model is there only for
        as long as it scores.
        """
        place = self._device.torch_device()
        if self._is_off:
            self._model.to(place)
        try:
            return scored(self._model, batch, self._cut.rows(batch.lengths_B), place)
        finally:
            if self._is_off:
                self._model.to("cpu")
                self._device.release_memory()

    def off(self) -> None:
        """Leave the device to a rollout engine."""
        self._is_off = True
        self._model.to("cpu")

    def back(self) -> None:
        """Take the device again."""
        self._is_off = False
        self._model.to(self._device.torch_device())

    def readings(self) -> dict[str, float]:
        """Return measured bytes of model state."""
        return {"parameter_bytes": float(self._num_bytes), **self._baseline, **self._device.memory_readings()}
