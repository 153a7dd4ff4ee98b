"""One run of either side, kept in a file, so that a comparison can go on where it stopped."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.catalog.spec.parse import parse_spec
from tests.bench.engine.trl_side import PROGRAM, RUN_SECONDS, read_lines
from tests.bench.engine.workloads import bundled_model, rows_in_order
from tests.bench.peers.parts import Part, spec_of
from tests.bench.stage import ROOT
from tests.jobs.engine.conftest import EndedRun, Running
from tests.proofs.answers import accuracy, held_out_rows
from tests.ray_head import RayHead

FOLDER = ROOT / "build" / "bench" / "peers"
ACCURACY = "accuracy"
NUM_HELD_OUT = 256
_ENGINE = ("jobs.engine", "--device=cpu")
Curves = dict[str, list[float]]


def kept(part: Part, side: str, seed: int) -> Curves | None:
    """Return the curves of an earlier run with the very same settings, or None."""
    file = FOLDER / f"{part.id}-{side}-{seed}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    curves: Curves | None = found.get("curves") if found.get("settings") == _settings(part, seed) else None
    return curves


def run_builtin(part: Part, seed: int, head: RayHead) -> Curves:
    """Train with the built-in trainer. Raises: AssertionError with what the driver printed."""
    folder = _empty(part, "builtin")
    ended: EndedRun = Running(folder, spec_of(part, seed), head, _ENGINE, is_warm=True).wait(RUN_SECONDS)
    assert ended.code == 0, ended.output
    curves = {name: [value for _, value in sorted(ended.series(name).items()) if _ > 0] for name in part.metrics}
    return _keep(part, "builtin", seed, curves, folder / "model" / "final")


def run_trl(part: Part, seed: int, python: str) -> Curves:
    """Train with TRL, on the rows in the order in which the built-in trainer takes them.

    Raises: AssertionError with what it printed.
    """
    folder = _empty(part, "trl")
    rows = rows_in_order(parse_spec(spec_of(part, seed)), part.num_steps * part.num_rows)
    (folder / "rows.json").write_text(json.dumps(rows))
    settings = {
        "algorithm": part.id,
        "model": str(bundled_model()),
        "rows": str(folder / "rows.json"),
        "folder": str(folder),
        "threads": 1,
        "reward": "",
        "keeps_model": True,
        "config": {**part.config, "max_steps": part.num_steps, "seed": seed},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    with (folder / "output.log").open("wb") as out:
        command = [python, str(PROGRAM), str(folder / "settings.json")]
        done = subprocess.run(
            command, cwd=folder, env=_environment(), stdout=out, stderr=out, timeout=RUN_SECONDS, check=False
        )
    assert done.returncode == 0, (folder / "output.log").read_text(errors="replace")[-4000:]
    logs = [line["values"] for line in read_lines(folder / "steps-0.jsonl") if line["kind"] == "log"]
    steps = [values for values in logs if "loss" in values]
    assert len(steps) == part.num_steps, steps
    curves = {name: [float(values[theirs]) for values in steps] for name, theirs in part.metrics.items()}
    return _keep(part, "trl", seed, curves, folder / "model")


def _keep(part: Part, side: str, seed: int, curves: Curves, model: Path) -> Curves:
    curves[ACCURACY] = [accuracy(model, held_out_rows(NUM_HELD_OUT))]
    (FOLDER / f"{part.id}-{side}-{seed}.json").write_text(
        json.dumps({"settings": _settings(part, seed), "curves": curves})
    )
    return curves


def _settings(part: Part, seed: int) -> Mapping[str, Any]:
    return {"spec": spec_of(part, seed), "config": dict(part.config), "metrics": dict(part.metrics)}


def _empty(part: Part, side: str) -> Path:
    folder = FOLDER / "runs" / f"{part.id}-{side}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _environment() -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **own, "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
