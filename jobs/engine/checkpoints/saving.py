"""Checkpoints and models of a run under way: written, and told of."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.catalog.role import trains_adapters
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.engine.checkpoints.adapter_export import SUFFIX, export_adapters
from jobs.engine.checkpoints.checkpoint import Checkpoints, LoopState, SavedCheckpoint, SaveUnderWay
from jobs.engine.checkpoints.export import export_model
from jobs.engine.checkpoints.resume import DataFingerprint
from jobs.engine.failures.failure_cause import NonFinite
from jobs.engine.reporting.run_report import RunReport, folder_bytes
from jobs.engine.workers.worker_group import WorkerGroup
from profiling import profile
from profiling.profile import mark


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """A checkpoint that is being written beside training, for which it stood still for `pause` seconds."""

    saving: SaveUnderWay
    scores: Mapping[str, float]
    pause: float


class Saver:
    """Writes what a run leaves behind. `data` is what the training data were (resume.fingerprint)."""

    def __init__(
        self, *, spec: RunSpec, run_dir: Path, workers: WorkerGroup, report: RunReport, data: DataFingerprint
    ) -> None:
        self._spec, self._run_dir, self._workers, self._report, self._data = spec, run_dir, workers, report, data
        self._saved_step = -1
        self._checkpoints = Checkpoints(
            run_dir / "checkpoints",
            keep=spec.int_knob("checkpoint.keep"),
            keep_best=spec.int_knob("checkpoint.keep_best"),
        )
        self._is_beside = bool(spec.knob("checkpoint.async_save"))
        self._under_way: _UnderWay | None = None
        self._meta_of: dict[int, dict[str, Any]] = {}  # step -> what was told of its checkpoint

    def take_spec(self, spec: RunSpec) -> None:
        """Go on with these knobs: checkpoints from now on say them."""
        self._spec = spec

    def checkpoint(self, state: LoopState, scores: Mapping[str, float]) -> None:
        """Write a checkpoint unless this step has one; `scores` is what people choose by: reward or loss of the step,
        the held-out score. With `checkpoint.async_save` it is begun, and told of when it is whole: by `poll`, by the
        next one, which waits for it, or by `finish`. Raises: NonFinite, and nothing is written over what was good;
        DiskTooSmall.
        """
        report, step = self._report, state.step
        if step == self._saved_step:
            return
        self.finish()
        self._check_weights(step)
        report.state("saving", f"Checkpoint {step}", step=step)
        with mark("checkpoint", step=step) as pause:
            saving = self._checkpoints.begin(
                self._workers,
                state,
                about={"spec": to_json(self._spec), "data": self._data, "scores": dict(scores)},
                is_beside=self._is_beside,
            )
            saved = None if self._is_beside else self._checkpoints.finish(saving)
        self._saved_step = step
        if saved is None:
            self._under_way = _UnderWay(saving=saving, scores=dict(scores), pause=pause.seconds)
        else:
            self._tell_saved(saved, step=step, scores=scores, pause=saved.seconds)
        report.driver_spans(profile.drain())
        report.state("training", step=step)

    def pin(self, step: int, *, is_pinned: bool) -> None:
        """Keep the checkpoint of a step whatever comes, or no longer, and say so."""
        done = "pinned: it is not deleted" if is_pinned else "no longer pinned"
        if self._checkpoints.pin(step, is_pinned=is_pinned):
            if step in self._meta_of:
                self._tell_checkpoint(step, **self._meta_of[step], pinned=is_pinned)
            self._report.note(f"Checkpoint {step} is {done}.", step=step)
        else:
            self._report.note(f"Checkpoint {step} is not there (any more), so nothing was pinned.", step=step)

    def hold_before(self, since: int) -> int | None:
        """Keep the newest checkpoint from before a possible divergence, none with 0; return its step."""
        return self._checkpoints.hold_before(since)

    def poll(self) -> None:
        """Put a checkpoint that is written beside training in its place, and tell of it, if it is written by now."""
        if self._under_way is not None and self._under_way.saving.is_written():
            self.finish()

    def finish(self) -> None:
        """Wait for a checkpoint that is written beside training, if there is one, and tell of it."""
        if self._under_way is None:
            return
        under_way = self._under_way
        saved = self._checkpoints.finish(under_way.saving)
        self._under_way = None
        self._tell_saved(saved, step=under_way.saving.state.step, scores=under_way.scores, pause=under_way.pause)

    def give_up(self) -> None:
        """Leave nothing of a checkpoint that was not whole when the run failed. The ranks must have ended."""
        if self._under_way is not None:
            self._under_way.saving.give_up()
            self._under_way = None

    def _tell_saved(self, saved: SavedCheckpoint, *, step: int, scores: Mapping[str, float], pause: float) -> None:
        report = self._report
        size = folder_bytes(saved.folder)
        self._meta_of[step] = {
            "size": size,
            "bytes": size,
            "seconds": saved.seconds,
            "ranks": len(self._workers.policies),
            "zero_stage": int(DERIVED["memory.used_zero_stage"](self._spec)),
            **scores,
        }
        self._tell_checkpoint(step, **self._meta_of[step])
        for old in saved.removed:
            self._tell_checkpoint(old, size=0, removed=True)
        if saved.removed:
            steps = ", ".join(map(str, saved.removed))
            report.note(f"Checkpoint {steps} deleted: newer, better or pinned ones are kept.", step=step)
        waited = f", of which training waited {pause:.2g} s" if self._is_beside else ""
        report.note(
            f"Checkpoint {step} saved, {_mebibytes(size)} in {saved.seconds:.2g} s{waited}",
            step=step,
            bytes=size,
            seconds=saved.seconds,
        )

    def _tell_checkpoint(self, step: int, *, size: int, **meta: Any) -> None:
        path = f"checkpoints/step-{step}"
        self._report.artifact(f"checkpoint-{step}", artifact="checkpoint", path=path, step=step, size=size, **meta)

    def model(self, name: str, *, step: int, metrics: Mapping[str, Any]) -> None:
        """Write the policy as the Hugging Face folder `model/<name>`, and its adapters, where it has any, as the folder
        that PEFT loads. Raises: NonFinite.
        """
        self._check_weights(step)
        self._report.state("saving", f"Exporting model/{name}", step=step)
        with mark("export", step=step) as export_mark:
            export_model(
                self._workers,
                self._run_dir / "model" / name,
                precision=str(self._spec.knob("memory.precision")),
                about={"step": step} | dict(metrics),
            )
            if trains_adapters(self._spec):
                final = self._run_dir / "model" / f"{name}{SUFFIX}"
                export_adapters(self._workers, final, about={"step": step} | dict(metrics))
        size = self.tell_model(name, step=step, metrics=metrics)
        self._report.note(
            f"Model of step {step} exported to model/{name}, {_mebibytes(size)} in {export_mark.seconds:.2g} s",
            step=step,
        )
        self._report.driver_spans(profile.drain())

    def _check_weights(self, step: int) -> None:
        for role, ranks in self._workers.trained.items():
            if not all(self._workers.gather([rank.call("has_finite_weights", step=step) for rank in ranks])):
                raise NonFinite(
                    f"The {role}'s weights are not finite after step {step}, so nothing was written; what was saved "
                    "before is still there. Lower optimizer.learning_rate or optimizer.max_grad_norm."
                )

    def tell_model(self, name: str, *, step: int, metrics: Mapping[str, Any]) -> int:
        """Announce `model/<name>`, which is there, and the folder of its adapters; return the bytes of the first."""
        sizes = {}
        for kind, folder in (("model", name), ("adapter", f"{name}{SUFFIX}")):
            if (path := self._run_dir / "model" / folder).is_dir():
                sizes[kind] = folder_bytes(path)
                about = dict(metrics) if kind == "model" else {}
                self._report.artifact(
                    f"{kind}-{name}", artifact=kind, path=f"model/{folder}", step=step, size=sizes[kind], **about
                )
        return sizes["model"]


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.3g} MiB"
