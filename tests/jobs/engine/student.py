"""A student for tests of distillation: the bundled model with noise in its weights, which the bundled one teaches."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from jobs.engine.data.model_files import BUNDLED

TEACHER = "tiny-word-problems"


def make_student(folder: Path) -> Path:
    """Make the model in this folder, always the same one; return the folder."""
    shutil.copytree(BUNDLED / TEACHER, folder)
    generator = torch.Generator().manual_seed(1)
    weights = load_file(folder / "model.safetensors")
    noised = {
        name: (w.float() + 0.8 * w.float().std() * torch.randn(w.shape, generator=generator)).to(w.dtype)
        for name, w in weights.items()
    }
    save_file(noised, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
