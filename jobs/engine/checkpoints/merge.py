"""`python -m jobs.engine.checkpoints.merge CHECKPOINT TARGET`: the model of a checkpoint as a Hugging Face folder.

Without Ray and without a device: the model that the run began with is loaded, what was trained of it, its weights or
its adapters, is read from the checkpoint, and what is written is bit for bit what the run exports after that step. A
base in 4 bits is packed anew on the CPU: one that the run packed on another device may differ in its last bits. The
last line printed says what is wrong where the exit code is not 0.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.checkpoints.checkpoint import CheckpointSource, open_checkpoint
from jobs.engine.checkpoints.export import write_model
from jobs.engine.data.model_files import model_folder, text_files
from jobs.engine.problem import DiskTooSmall, RunProblem
from jobs.engine.roles.adapters import AdapterConfig, add_adapters, linear_layers, whole_weights
from jobs.engine.roles.four_bit import pack_base
from jobs.engine.roles.language_model import EXPORT_BYTES, buckets, read_model
from jobs.engine.roles.parts import WEIGHTS, FlatSlice, Parts
from jobs.engine.roles.value_head import load_score_model, score_texts

ROLE = "policy"


def merge(checkpoint: Path, target: Path) -> None:
    """Write the policy, or the reward model, of the folder `checkpoint` as the Hugging Face folder `target`.

    Raises: RunProblem; SpecInvalid if this version does not accept the spec of the checkpoint.
    """
    source = open_checkpoint(checkpoint, name=f"Checkpoint {checkpoint.name}")
    spec = parse_spec(source.index["spec"])
    source.check()
    folder = model_folder(spec.model)
    precision = str(spec.knob("memory.precision"))
    model = _trained_model(spec, folder, precision, source)
    about = {"step": source.state.step} | dict(source.index.get("scores", {}))
    texts = score_texts(folder, model) if is_in(spec.algorithm, "scalar") else text_files(folder)
    write_model(target, texts, _parts(model), precision=precision, about=about)


def _trained_model(spec: RunSpec, folder: Path, precision: str, source: CheckpointSource) -> Any:
    """Return the model as it was trained when the checkpoint was saved, in the run's precision."""
    if is_in(spec.algorithm, "scalar"):
        model = load_score_model(folder, precision=precision, is_packed=False, field="model.id")
    else:
        model, _ = read_model(AutoModelForCausalLM, folder, precision=precision, sharding=None, field="model.id")
    if (adapters := AdapterConfig.of(spec)) is not None:
        pack_base(model, linear_layers(model), spec, device="cpu")
        add_adapters(model, adapters, seed=spec.int_knob("train.seed"), base=spec.model.id)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    source.check_model({"names": list(trained), "shapes": [list(p.shape) for p in trained.values()]}, ROLE)
    parts = Parts(source.folder / source.index["roles"][ROLE]["folder"])
    for name, parameter in trained.items():
        values = parts.read(FlatSlice(state=WEIGHTS, name=name, start=0, numel=parameter.numel()))
        parameter.data.view(-1).copy_(values)  # rounded as the ranks round what they compute with
    return model


def _parts(model: Any) -> Iterator[Mapping[str, Tensor]]:
    """Yield the weights file by file, adapters added, as the ranks hand them over."""
    whole = whole_weights(model)
    for run in buckets([weight.num_bytes for weight in whole], EXPORT_BYTES):
        with torch.no_grad():
            yield {whole[i].name: whole[i].value().detach() for i in run}


def main() -> None:
    """Merge. Raises: SystemExit with a sentence."""
    try:
        merge(Path(sys.argv[1]), Path(sys.argv[2]))
    except (RunProblem, SpecInvalid, DiskTooSmall) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
