"""Captures that the trainer left open when it ended: what its workers left of them is found, told and handed over.

nsys writes its report beside the process that it records, and keeps to that when the process is killed or its driver
dies; a worker that leaves in good order writes its trace then. The trainer cannot tell of either: it waits for nobody,
or is gone itself. So the runner looks, once every process has ended (`orphans.kill_orphans` gives nsys the time).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.reporting.shipped_report import ShippedReport
from jobs.runner.reporting.trainer_progress import TrainerProgress
from profiling.captures.capture import (
    UNFINISHED,
    CaptureWindow,
    LeftFile,
    announcement,
    final_path,
    is_of,
    leaving_sign,
    left,
    missing_text,
    recordings,
    sha256_of,
)
from profiling.events import ArtifactEvent
from profiling.recorders.recorder import load_tool, tool_names
from profiling.redaction import own_secrets

WRITE_SECONDS = 60.0  # for nsys to write the reports of processes that are gone
HURRIED_WRITE_SECONDS = 3.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what a trainer calls a capture becomes part of paths and patterns


class CaptureRecovery:
    """The captures of one attempt that somebody recorded, and nobody has told the end of."""

    def __init__(self, job: RunnerJob, progress: TrainerProgress) -> None:
        self._run_dir, self._progress = job.run_dir, progress

    @property
    def tools(self) -> dict[str, str]:
        """What each of them was recorded with, by id."""
        return {capture: str(state["tool"]) for capture, state in self._open().items()}

    def write_seconds(self, *, is_hurried: bool) -> float:
        """Return how long nsys may take with its reports; 0 where there is none to wait for."""
        if not self.tools:
            return 0.0
        return HURRIED_WRITE_SECONDS if is_hurried else WRITE_SECONDS

    def finish(self, report: ShippedReport, *, why: str, remote: Mapping[str, str]) -> None:
        """Announce what is there and say what became of each capture; every process of the attempt has ended.

        `why` says how the trainer ended, if it did not say so itself. `remote`: files that were found on other
        nodes, and why one is of no use.
        """
        if said := str(self._progress.cause.get("text") or ""):
            why = f"The run failed: {said}"
        left_files = left(self._run_dir, self.tools, secrets=own_secrets())
        problems = {name: file.problem for name, file in left_files.items()} | {n: p for n, p in remote.items() if p}
        for capture, state in self._open().items():
            try:
                self._end(report, capture, state, left_files, problems, why)
            except OSError as error:
                _fail(report, capture, f"{why} Its files were not kept: {error.strerror or error}.")
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
                said = f"{type(error).__name__}: {str(error)[:200]}"
                _fail(report, capture, f"{why} What the trainer told of the capture cannot be read ({said}).")
        for pattern in (".part*", ".piece-*", leaving_sign(Path(), "*").name):  # nobody is left to go on with it
            for half in recordings(self._run_dir).glob(pattern):
                half.unlink(missing_ok=True)

    def _open(self) -> dict[str, Mapping[str, Any]]:
        captures = self._progress.captures.items()
        return {
            capture: state
            for capture, state in captures
            if _ID.fullmatch(str(capture)) and state["state"] in UNFINISHED and state.get("tool") in tool_names()
        }

    def _end(
        self,
        report: ShippedReport,
        capture: str,
        state: Mapping[str, Any],
        left_files: Mapping[str, LeftFile],
        problems: Mapping[str, str],
        why: str,
    ) -> None:
        window = self._window(capture, state)
        brought = [e for e in self._progress.artifacts.values() if e.get("meta", {}).get("capture") == capture]
        here = {f"{e['meta']['role']}-{e['meta']['rank']}" for e in brought}
        missing = {str(name): str(problem) for name, problem in dict(state.get("missing") or {}).items()}
        num_files = len(brought)
        for worker in map(str, state["workers"]):
            if worker in here:
                continue
            own = [name for name in {**left_files, **problems} if is_of(name, capture, worker)]
            whole = [name for name in own if not problems.get(name)]
            paths = [self._put(capture, name) for name in whole] or self._put_before(capture, worker, brought)
            for path in paths:
                self._announce(report, window, worker, path, left_files)
            num_files += len(paths)
            if paths:
                missing.pop(worker, None)
            else:
                reasons = [problems[name] for name in own]
                missing.setdefault(worker, " ".join(reasons) or load_tool(window.tool).lost)
        cut = str(state.get("truncated") or ("" if state["state"] in ("stopping", "writing") else why))
        if not num_files:
            _fail(report, capture, f"{(cut or why).rstrip('.')}. {missing_text(missing)}")
            return
        meta: dict[str, object] = {
            "first_step": window.first_step,
            "num_steps": window.num_steps,
            "num_files": num_files,
        }
        meta |= {"missing": missing} | ({"truncated": cut} if cut else {})
        text = f"Not recorded: {missing_text(missing)}" if missing else ""
        report.say(f"capture {capture}: kept after the end of the trainer. {text}".rstrip())
        report.capture(capture, "importing", step=window.first_step + window.num_steps - 1, text=text, **meta)

    def _window(self, capture: str, state: Mapping[str, Any]) -> CaptureWindow:
        """Return the steps that were recorded: those told, or up to the one under way if it was not over."""
        first, num_steps = int(state["first_step"]), int(state["num_steps"])
        if state["state"] == "recording":
            touched = max(1, self._progress.step + 1 - first + 1)
            num_steps = touched if state.get("seconds") else min(num_steps, touched)
        return CaptureWindow(capture=capture, tool=str(state["tool"]), first_step=first, num_steps=num_steps)

    def _put(self, capture: str, name: str) -> Path:
        target = final_path(self._run_dir, capture, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        return (recordings(self._run_dir) / name).replace(target)

    def _put_before(self, capture: str, worker: str, brought: list[ArtifactEvent]) -> list[Path]:
        """Return files that were put into place, and not told of any more."""
        announced = {self._run_dir / event["path"] for event in brought}
        folder = final_path(self._run_dir, capture, "")
        places = sorted(folder.iterdir()) if folder.is_dir() else []
        return [
            p for p in places if p not in announced and is_of(f"{capture}-{p.name}", capture, worker) and _is_whole(p)
        ]

    def _announce(
        self, report: ShippedReport, window: CaptureWindow, worker: str, path: Path, left_files: Mapping[str, LeftFile]
    ) -> None:
        role, _, rank = worker.rpartition("-")
        about = left_files.get(f"{window.capture}-{path.name}")
        event = report.artifact(
            **announcement(
                window,
                path,
                role=role,
                rank=int(rank),
                tool_version=about.tool_version if about else "",
                size=path.stat().st_size,
                sha256=sha256_of(path),
            )
        )
        self._progress.artifacts[event["name"]] = event


def _fail(report: ShippedReport, capture: str, text: str) -> None:
    report.say(f"capture {capture}: failed. {text}")
    report.capture(capture, "failed", text=text)


def _is_whole(path: Path) -> bool:
    return not path.name.endswith(".part")
