"""The frozen model that the policy is held near to. Runs inside an actor (actor.py), which imports it by name."""

from dataclasses import replace

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from jobs.engine.data.model_files import model_folder
from jobs.engine.device import load_device
from jobs.engine.micro_batches import Cut
from jobs.engine.roles.language_model import load_model, memory_before_model, score


class Reference:
    """The starting model, for scoring alone."""

    def __init__(self, *, spec: RunSpec, device: str) -> None:
        self._spec, self._device = spec, load_device(device)
        self._device.prepare_trainer()
        self._baseline = memory_before_model()
        self._cut = Cut.of(spec)
        precision = str(spec.knob("memory.precision"))
        model = load_model(model_folder(spec.model), precision=precision, is_packed=self._cut.is_packed)
        self._cut = replace(self._cut, is_packed=bool(model.is_packed))
        self._model = model.to(self._device.torch_device()).eval()
        self._num_bytes = sum(p.numel() * p.element_size() for p in self._model.parameters())

    def take_spec(self, spec: RunSpec) -> None:
        """Go on with these knobs, of which some were changed while the run trains."""
        self._spec = spec

    def logprobs(self, batch: Batch) -> Tensor:
        """Return the reference's log-probabilities: [B, L]."""
        return score(
            self._model,
            batch,
            micros=self._cut.rows(batch.lengths_B),
            temperature=self._spec.float_knob("rollout.temperature"),
            device=self._device.torch_device(),
        )

    def readings(self) -> dict[str, float]:
        """Return measured bytes of model state."""
        return {"parameter_bytes": float(self._num_bytes), **self._baseline, **self._device.memory_readings()}
