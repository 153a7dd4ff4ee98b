"""LoRA: two small matrices beside each frozen linear layer, A [rank, in] and B [out, rank], made and computed by PEFT.

A layer says x W^T + scale x A^T B^T, scale = alpha / rank (Hu et al., arXiv 2106.09685), or alpha / sqrt(rank) where it
is rank-stabilized (Kalajdzievski, arXiv 2312.03732). With DoRA the rows of W + scale B A also have lengths that are
learned (Liu et al., arXiv 2402.09353). B starts at zero, so training starts from the base, and the base is what is left
where the adapters are switched off.

PEFT puts its layers into the model that is there, without a wrapper: what `head.score_counted_tokens` replaced stays.
It is imported only where a run has adapters (0.35 s of CPU time, 11 MB).
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.problem import RunProblem
from jobs.engine.roles.four_bit import num_elements, packed_shape, unpacked, unpacked_type

ALL_LINEAR = "all-linear"
_NAME = "default"
_MARK = "lora_"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """What adapters a model gets.

    `targets`: names of linear layers, as PEFT takes them, or `all-linear`, which is all but the output layer. `dropout`
    is the fraction of an adapter's inputs that is dropped in updates.
    """

    rank: int
    alpha: int
    targets: str
    dropout: float = 0.0
    is_rank_stabilized: bool = False
    has_magnitudes: bool = False

    @classmethod
    def of(cls, spec: RunSpec) -> "AdapterConfig | None":
        """Return what a run's knobs say; None where all weights are trained."""
        rank = spec.int_knob("lora.rank")
        if rank == 0:
            return None
        return cls(
            rank=rank,
            alpha=spec.int_knob("lora.alpha"),
            targets=str(spec.knob("lora.target_modules")),
            dropout=spec.float_knob("lora.dropout") if "lora.dropout" in spec.knobs else 0.0,
            is_rank_stabilized=bool(spec.knob("lora.rslora")),
            has_magnitudes=bool(spec.knob("lora.dora")),
        )


def add_adapters(model: Any, config: AdapterConfig, *, seed: int, base: str = "") -> None:
    """Freeze a model of transformers and put adapters into it. Parameters keep their names, but for `.base_layer`.

    A scalar head (value_head.py) stays trained as a whole, without an adapter: it starts at zero. The first A are drawn
    from `seed` alone, so that they are the same on each rank, also where ZeRO-3 divides them. `base` is what the
    exported adapter says it belongs to. Raises: RunProblem naming `lora.target_modules`.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    scalar_head = getattr(model, "scalar_head", None)
    names = [name for name in (word.strip() for word in config.targets.split(",")) if name]
    is_all = names in ([], [ALL_LINEAR])
    if not is_all:
        _check_names(model, names)
    lora = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=ALL_LINEAR if is_all else names,
        exclude_modules=[path for path, module in model.named_modules() if module is scalar_head] or None,
        lora_dropout=config.dropout,
        use_rslora=config.is_rank_stabilized,
        use_dora=config.has_magnitudes,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base or None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(lora, model, adapter_name=_NAME)
    for parameter in adapter_parameters(model).values():
        parameter.data = parameter.data.to(model.dtype)  # beside packed weights PEFT leaves them in float32
    if scalar_head is not None:
        scalar_head.requires_grad_(requires_grad=True)
    _set_dropout(model, 0.0)


def _check_names(model: Any, names: list[str]) -> None:
    """Raise RunProblem for the first name that is not that of linear layers, or of the output layer."""
    linear, paths, head = linear_layers(model), dict(model.named_modules()), _output_layer(model)
    choices = ", ".join(dict.fromkeys(path.rpartition(".")[2] for path in linear))
    for name in names:
        matches = [path for path in paths if path == name or path.endswith(f".{name}")]
        if matches and linear.keys() >= set(matches):
            continue
        is_head = any(paths[path] is head for path in matches)
        kind = "the output layer, which is computed in pieces," if is_head else "no linear layer"
        raise RunProblem(
            "knobs.lora.target_modules",
            f"{name!r} is {kind if matches else 'no layer'} of this model. Use {ALL_LINEAR}, or some of {choices}.",
        )


def linear_layers(model: Any) -> dict[str, Any]:
    """Return the linear layers inside a model by path: all but the output layer."""
    from transformers.pytorch_utils import Conv1D

    head, kinds = _output_layer(model), (torch.nn.Linear, Conv1D)
    return {path: m for path, m in model.named_modules() if isinstance(m, kinds) and m is not head}


def _output_layer(model: Any) -> Any:
    return getattr(model, "scalar_head", None) or model.get_output_embeddings()


def has_adapters(model: Any) -> bool:
    """Return whether `add_adapters` was here."""
    return bool(getattr(model, "peft_config", None))


@contextlib.contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Let the model be its base inside the block, in which nothing is trained."""
    layers = list(_layers(model).values())
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@contextlib.contextmanager
def dropping(model: Any, config: AdapterConfig | None, *, seed: int) -> Iterator[None]:
    """Let adapters drop inputs inside the block, which are drawn from `seed`; nothing where they drop none.

    Outside of it none are dropped, whoever puts the model into whichever mode.
    """
    if config is None or not config.dropout:
        yield
        return
    torch.manual_seed(seed)
    _set_dropout(model, config.dropout)
    try:
        yield
    finally:
        _set_dropout(model, 0.0)


def _set_dropout(model: Any, fraction: float) -> None:
    for layer in _layers(model).values():
        for module in layer.lora_dropout.values():
            if isinstance(module, torch.nn.Dropout):
                module.p = fraction


def _layers(model: Any) -> dict[str, Any]:
    """Return the layers that have an adapter by path; none for a model without."""
    if not has_adapters(model):
        return {}
    from peft.tuners.lora import LoraLayer

    return {path: module for path, module in model.named_modules() if isinstance(module, LoraLayer)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeWeight:
    """A weight as a rollout engine and a Hugging Face folder know it: that of the base, its adapter added.

    `parameters` are those it is made of, which have to be whole when `value` is called; the first is the base's.
    """

    name: str
    parameters: tuple[Any, ...]
    layer: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, also while ZeRO-3 has divided it, or it is packed."""
        base = self.parameters[0]
        return packed_shape(base) or tuple(getattr(base, "ds_shape", None) or base.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Its type; of one that is packed that of its values."""
        base = self.parameters[0]
        dtype: torch.dtype = base.dtype if packed_shape(base) is None else unpacked_type(base)
        return dtype

    @property
    def num_bytes(self) -> int:
        """Its bytes."""
        return num_elements(self.parameters[0]) * self.dtype.itemsize

    def value(self) -> Tensor:
        """Return its elements. Where it has an adapter or is packed they are a copy: the base stays as it is."""
        base = self.parameters[0]
        if packed_shape(base) is not None:
            return unpacked(base) if self.layer is None else _merged_unpacked(self.layer)
        if self.layer is None:
            data: Tensor = base.data
            return data
        return _merged(self.layer)


@torch.no_grad()
def _merged(layer: Any) -> Tensor:
    """Return the weight of a layer with its adapter, by PEFT's own sum, in float32 and rounded once."""
    base = layer.get_base_layer().weight
    unmerged = base.data
    base.data = unmerged.to(torch.float32, copy=True)
    try:
        layer.merge()
        merged: Tensor = base.data.to(unmerged.dtype)
    finally:
        base.data = unmerged
        layer.merged_adapters.clear()
    return merged


@torch.no_grad()
def _merged_unpacked(layer: Any) -> Tensor:
    """Return the values of a packed layer with its adapter, in float32 and rounded once. PEFT would pack the sum."""
    base = unpacked(layer.get_base_layer().weight)
    (down, up), scale = (part[_NAME].weight.float() for part in (layer.lora_A, layer.lora_B)), layer.scaling[_NAME]
    return (base.float() + scale * (up @ down)).to(base.dtype)


def whole_weights(model: Any) -> list[WholeWeight]:
    """Return the weights of a model in order, under the names that they have without adapters."""
    layers = _layers(model)
    whole = []
    for name, parameter in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        layer = layers.get(path.removesuffix(".base_layer"))
        if _is_adapter(name):
            continue
        is_adapted = layer is not None and leaf == "weight" and path.endswith(".base_layer")
        own = [p for key, p in layer.named_parameters() if _is_adapter(key)] if layer is not None and is_adapted else []
        plain = name.replace(".base_layer.", ".")
        whole.append(WholeWeight(name=plain, parameters=(parameter, *own), layer=layer if is_adapted else None))
    return whole


def _is_adapter(name: str) -> bool:
    return any(part.startswith(_MARK) for part in name.split("."))


def adapter_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of a model's adapters by name, in order."""
    return {name: parameter for name, parameter in model.named_parameters() if _is_adapter(name)}


def adapter_files(model: Any, values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what PEFT's folder of a model's adapters holds: tensors of `adapter_model.safetensors` by the names that
    PEFT loads, and the content of `adapter_config.json`. `values`: of `adapter_parameters`, whole.
    """
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, state_dict=dict(values), adapter_name=_NAME, save_embedding_layers=False)
    config = model.peft_config[_NAME].to_dict() | {"inference_mode": True}
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    return {f"base_model.model.{name}": value for name, value in state.items()}, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedShare:
    """How much of a model is trained: elements, of how many in all, and the bytes of its adapters in their own type."""

    num_trained: int
    num_all: int
    num_bytes: int

    @classmethod
    def of(cls, model: Any) -> "TrainedShare | None":
        """Count; None where all of it is trained."""
        if not has_adapters(model):
            return None
        own = adapter_parameters(model).values()
        sizes = [num_elements(p) for p in own]
        base = sum(num_elements(p) for p in model.parameters())
        num_bytes = sum(size * int(p.element_size()) for size, p in zip(sizes, own, strict=True))
        return cls(num_trained=sum(sizes), num_all=base, num_bytes=num_bytes)

    def metrics(self) -> dict[str, float]:
        """Return it by canonical names."""
        return {
            "policy/trainable_parameters": float(self.num_trained),
            "policy/trainable_fraction": self.num_trained / self.num_all,
            "policy/adapter_bytes": float(self.num_bytes),
        }

    def __str__(self) -> str:
        return (
            f"Adapters are trained: {self.num_trained:,} of {self.num_all:,} parameters "
            f"({self.num_trained / self.num_all:.2%}), {self.num_bytes / (1 << 20):.3g} MiB. The base is frozen."
        )
