"""Program of test_resume and of the proof: train, save, and go on with another number of ranks or another ZeRO stage.

Arguments: `few` or `all`, and RUN_DIR; writes what it measured to `found.json`.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

import jobs.engine.checkpoints.checkpoint as checkpoint_module
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.spec.runspec import to_json as spec_json
from jobs.engine.algorithm import Counts
from jobs.engine.batch import make_batch, share_out
from jobs.engine.checkpoints.checkpoint import Checkpoints, LoopState, open_checkpoint
from jobs.engine.data.dataset import load_table
from jobs.engine.data.examples import render, usable
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.text import TextModel
from jobs.engine.session import ROLE_CLASSES
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.ranks import make_workers

NUM_STEPS, SAVED_STEP, BATCH = 6, 3, 32
SMALL_PART = 1 << 20  # a rank of two hands over four of these
FAR = "tests.jobs.engine.faulty:FarPolicy"
NEAR = ROLE_CLASSES["policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the training state is spread: ZeRO stage, ranks, precision, whether the optimizer is offloaded, the
    checkpoint written beside training, and whether rank 1 shares no disk.
    """

    stage: int
    ranks: int
    precision: str = "float32"
    masters: str = "float32"
    is_on_host: bool = False
    is_beside: bool = False
    role: str = NEAR

    def __str__(self) -> str:
        words = {
            " bfloat16": self.precision == "bfloat16",
            " half masters": self.masters == "bfloat16",
            " host": self.is_on_host,
            " beside": self.is_beside,
            " apart": self.role == FAR,
        }
        return f"ZeRO-{self.stage} ×{self.ranks}" + "".join(word for word, is_so in words.items() if is_so)


class Bench:
    """Policy ranks alone, learning the same batches in the same order whatever their layout."""

    def __init__(self, run_dir: Path, base: dict[str, Any]) -> None:
        self._run_dir, self._base = run_dir, base
        self.spec = parse_spec(base)
        self.text = TextModel(model_folder(self.spec.model))
        rows = load_table(self.spec.data, inputs_dir=run_dir).train[: NUM_STEPS * BATCH]
        self.examples = usable(self.spec, render(self.spec, rows, self.text))
        self._groups: dict[int, WorkerGroup] = {}

    def workers(self, layout: Layout) -> WorkerGroup:
        """Build the layout's ranks anew, in the processes there are."""
        spec = self._spec(layout)
        workers = self._groups.get(layout.ranks) or make_workers(spec, self._run_dir / f"x{layout.ranks}")
        self._groups[layout.ranks] = workers
        host, port = workers.address_of(workers.policies[0])
        workers.gather(
            [
                p.start(
                    layout.role, spec=spec, rank=p.rank, world_size=layout.ranks, host=host, port=port, device="cpu"
                )
                for p in workers.policies
            ]
        )
        return workers

    def _spec(self, layout: Layout) -> RunSpec:
        knobs = {
            "memory.zero_stage": str(layout.stage),
            "memory.precision": layout.precision,
            "memory.master_precision": layout.masters,
            "memory.adam_offload": layout.is_on_host,
            "memory.zero_param_offload": layout.is_on_host,
        }
        return parse_spec(
            self._base | {"hardware": {"policy_ranks": layout.ranks}, "knobs": self._base["knobs"] | knobs}
        )

    def losses(self, workers: WorkerGroup, first: int, last: int) -> list[float]:
        """Train steps first..last; return their losses."""
        found = []
        for step in range(first, last + 1):
            part = self.examples[(step - 1) * BATCH : step * BATCH]
            batch = make_batch([(e.tokens, e.is_trained) for e in part], pad_id=self.text.pad_id)
            shares = share_out(BATCH, num_updates=1, num_ranks=len(workers.policies), seed=str(step))
            counts = [Counts(num_tokens=batch.num_trained_tokens, num_sequences=BATCH)]
            calls = [
                p.call("update", [batch.rows(index) for index in share], counts, 1e-3, step=step)
                for p, share in zip(workers.policies, shares, strict=True)
            ]
            found.append(sum(t[0].shares["loss/sft"] for t in workers.gather(calls)))
        return found

    def whole(self, layout: Layout) -> dict[str, Any]:
        """Train all steps, with a checkpoint on the way."""
        workers = self.workers(layout)
        losses = self.losses(workers, 1, SAVED_STEP)
        state = LoopState(step=SAVED_STEP, num_consumed=SAVED_STEP * BATCH)
        checkpoints = Checkpoints(self._run_dir / str(layout), keep=2)
        saving = checkpoints.begin(
            workers, state, about={"spec": spec_json(self._spec(layout))}, is_beside=layout.is_beside
        )
        if layout.is_beside:
            losses += self.losses(workers, SAVED_STEP + 1, NUM_STEPS)
        saved = checkpoints.finish(saving)
        if not layout.is_beside:
            losses += self.losses(workers, SAVED_STEP + 1, NUM_STEPS)
        files = sorted(f.name for f in saved.folder.glob("policy/*.safetensors"))
        return {
            "losses": losses,
            "folder": str(saved.folder),
            "files": files,
            "bytes": sum(f.stat().st_size for f in saved.folder.rglob("*") if f.is_file()),
            "seconds": saved.seconds,
        }

    def resumed(self, folder: str, layout: Layout) -> dict[str, Any]:
        """Train the steps after the checkpoint with new ranks."""
        workers = self.workers(layout)
        found = open_checkpoint(Path(folder), name="The checkpoint")
        found.check()
        begin = time.perf_counter()
        found.restore(workers)
        seconds = time.perf_counter() - begin
        return {"losses": self.losses(workers, SAVED_STEP + 1, NUM_STEPS), "seconds": seconds}

    def close(self) -> None:
        """End all ranks."""
        for workers in self._groups.values():
            workers.close()


def plan(which: str) -> list[tuple[Layout, list[Layout]]]:
    """Return each layout that saves, and those that go on from it."""
    layouts = [Layout(stage=s, ranks=r) for s in range(4) for r in (1, 2)]
    if which == "all":
        apart = [Layout(stage=s, ranks=2, role=FAR) for s in range(4)]
        half = [Layout(stage=s, ranks=r, precision="bfloat16") for s in range(4) for r in (1, 2)]
        half += [Layout(stage=s, ranks=2, precision="bfloat16", masters="bfloat16") for s in (2, 3)]
        host = [Layout(stage=s, ranks=2, is_on_host=True) for s in (2, 3)]
        return [(source, layouts) for source in layouts] + [(same, [same]) for same in apart + half + host]
    two = Layout(stage=2, ranks=2, role=FAR)
    host = Layout(stage=3, ranks=2, is_on_host=True, is_beside=True)
    half = Layout(stage=2, ranks=2, precision="bfloat16", masters="bfloat16")
    return [(two, [two, Layout(stage=0, ranks=1)]), (host, [host, Layout(stage=1, ranks=2)]), (half, [half])]


def main() -> None:
    """Measure the plan on the spec in the run directory."""
    run_dir = Path(sys.argv[2])
    checkpoint_module.HANDED_BYTES = SMALL_PART
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    bench = Bench(run_dir, json.loads((run_dir / "spec.json").read_text()))
    found = []
    for source, targets in plan(sys.argv[1]):
        whole = bench.whole(source)
        resumed = {str(target): bench.resumed(whole["folder"], target) for target in targets}
        found.append({"source": str(source), **whole, "resumed": resumed})
    bench.close()
    (run_dir / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
