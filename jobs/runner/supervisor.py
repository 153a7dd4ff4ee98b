"""One attempt from its start to its terminal event: this is what the Ray job runs."""

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from jobs.adapters.adapter import adapter
from jobs.adapters.checkpoints import origin_of
from jobs.catalog.spec.own_profile import starts_under_nsys
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner.captures.captures import HURRIED_SECONDS, RunnerCaptures, finish_own
from jobs.runner.captures.recovery import CaptureRecovery
from jobs.runner.console_client.console import Console, ConsoleError, ConsoleUnreachable, LaunchAnswer
from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.environment import environment_for, without_secrets
from jobs.runner.failures.cause import exit_cause_of, oom_kill_count
from jobs.runner.failures.incomplete_folders import tidy
from jobs.runner.finish import hand_over_files, outcome
from jobs.runner.hang_watch import OutsideWatch
from jobs.runner.merging import MergeSource, merge_left
from jobs.runner.nodes.node import NodeSampler
from jobs.runner.nodes.orphans import Cleanup, find, kill_orphans
from jobs.runner.nodes.remote_nodes import RemoteNodes
from jobs.runner.nodes.worker_readings import WorkerSampler
from jobs.runner.prepare import NotPrepared, PreparedRun, fetch_launch, make_run_dir, prepare
from jobs.runner.reporting.shipped_report import ShippedReport
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.saved_checkpoints import SavedCheckpoints
from jobs.runner.surroundings import AttemptParts, tell_surroundings
from jobs.runner.trainer import Escalation, Exit, TrainerNotStarted, TrainerProcess, start
from jobs.runner.translation import (
    Translation,
    label_of,
    translation_of,
    translation_of_the_rest,
)
from jobs.runner.uploads import CaptureUploads
from jobs.runner.variables.variables import (
    NO_VARIABLES,
    GivenVariables,
    VariablesMissing,
    ask_variables,
    drop_from_store,
    remember_secrets,
    store_for_workers,
    with_variables,
)
from profiling.captures.capture import recordings

TICK_SECONDS = 0.1
OVERDUE_SECONDS = 60.0  # from the trainer's word that it is over to its being ended: native libraries hang at exit
SURROUNDINGS_SECONDS = 20.0  # until it is known what a run that failed at once was made of
HURRIED_UPLOAD_SECONDS = 3.0
EXIT_DONE, EXIT_FAULT, EXIT_FENCED = 0, 1, 3


class AttemptSupervisor:
    """Supervises one attempt. `asked_to_end` is set by SIGTERM: the cluster ends the job within seconds."""

    def __init__(self, job: RunnerJob, console: Console) -> None:
        self.job = job
        self.console = console
        self.asked_to_end = threading.Event()
        self.progress = TrainerProgress(path=job.run_dir / "events.jsonl")
        self.recovery = CaptureRecovery(job, self.progress)

    def run(self) -> int:
        """Do all of it; return the exit code of the process."""
        try:
            answer = fetch_launch(self.console, wait=self.asked_to_end.wait, say=print)
        except ConsoleError as error:
            print(f"Nothing was started. {error}", flush=True)
            return EXIT_FENCED
        is_restarted = (self.job.run_dir / "launch.json").exists()
        make_run_dir(self.job.run_dir)
        if is_restarted:
            return self.close_killed()
        try:
            variables = ask_variables(self.job, self.console, answer, wait=self.asked_to_end.wait)
            store_for_workers(variables, os.environ)
            refusal = None
        except (VariablesMissing, ConsoleError, OSError) as error:
            variables, refusal = NO_VARIABLES, error
        report = ShippedReport(self.job, self.console)
        try:
            if refusal is not None:
                report.start()
                return self._not_started(report, refusal)
            return self._train(answer, report, variables)
        finally:
            report.close()
            drop_from_store(self.job, os.environ)

    def kill_orphans_of_killed_runner(self) -> Cleanup:
        """End what a killed runner left behind, before its files are opened; return the clean-up report."""
        self.progress.read()
        return kill_orphans(
            run=self.job.run,
            attempt=self.job.attempt,
            leave_seconds=min(1.0, self.job.leave_seconds),
            write_seconds=self.recovery.write_seconds(is_hurried=self.asked_to_end.is_set()),
            recordings=recordings(self.job.run_dir),
        )

    def close_killed(self) -> int:
        """End what a killed runner left; send the rest of what it had to ship, then the terminal event."""
        cleanup = self.kill_orphans_of_killed_runner()
        drop_from_store(self.job, os.environ)
        knows_secrets = remember_secrets(self.job, self.console)
        report = ShippedReport(self.job, self.console, knows_secrets=knows_secrets)
        try:
            return self._close_killed(report, cleanup)
        finally:
            report.close()

    def _close_killed(self, report: ShippedReport, cleanup: Cleanup) -> int:
        self.progress.read()
        rest = translation_of_the_rest(self.job, report, after_step=self.progress.step)
        if rest is not None and not report.has_terminal_event:
            rest.read_the_rest()
            self.progress.read()
            finish_own(self.job, rest, self.progress)
            self._checkpoints(rest.spec, rest).look()
            rest.finish(has_succeeded=False)
            self.progress.read()
        report.start()
        if not report.has_terminal_event:
            remote_nodes = RemoteNodes(self.job, report, self.progress)
            is_hurried = self.asked_to_end.is_set()
            remote_nodes.begin_end(
                min(1.0, self.job.leave_seconds),
                write_seconds=self.recovery.write_seconds(is_hurried=is_hurried),
                captures=self.recovery.tools,
            )
            cleanup = remote_nodes.finish_end(cleanup, is_hurried=is_hurried)
            why = "The runner was killed, and the trainer with it."
            self.recovery.finish(report, why=why, remote=remote_nodes.left)
            step = self.progress.step
            text = "the runner was killed, and the trainer with it" + (f", in step {step + 1}" if step else "")
            self._finish(report, "failed", {"side": "cluster", "text": text, "step": step}, cleanup)
        return self._wait(report)

    def _checkpoints(self, spec: RunSpec, translation: Translation) -> SavedCheckpoints:
        run_dir = self.job.run_dir
        return SavedCheckpoints(
            spec, run_dir, progress=self.progress, translation=translation, origin=origin_of(run_dir)
        )

    def _train(self, answer: LaunchAnswer, report: ShippedReport, variables: GivenVariables) -> int:
        try:
            prepared = prepare(
                self.job, self.console, answer, python=sys.executable, wait=self.asked_to_end.wait, variables=variables
            )
            report.commands.refused = _refused(prepared)
            report.commands.take(answer.get("commands") or ())
            translation = translation_of(prepared.spec, self.job, report)
            captures = checkpoints = None
            if translation is not None:
                translation.begin(f"Starting {label_of(prepared.spec)}")
                captures = RunnerCaptures(prepared.spec, self.job, report, translation)
                checkpoints = self._checkpoints(prepared.spec, translation)
            oom_kills = oom_kill_count()
            trainer = start(
                launch=prepared.launch,
                run_dir=self.job.run_dir,
                environ=with_variables(environment_for(prepared.spec, os.environ, self.job.run_dir), variables),
                working_dir=None if prepared.spec.is_native else prepared.launch.working_dir or self.job.run_dir,
                variables=variables.all,
                nsys_trace=_nsys_trace(prepared.spec, self.job.device),
            )
        except (NotPrepared, TrainerNotStarted, OSError, ConsoleError) as error:
            report.start()
            return self._not_started(report, error)
        report.start()
        parts = AttemptParts(
            python=prepared.python,
            variables=variables,
            spec=prepared.spec,
            declared=self.job.trainers,
            working_dir=prepared.launch.working_dir,
            run_dir=self.job.run_dir,
            has_read_data=lambda: self.progress.step > 0 or trainer.poll() is not None,
        )
        surroundings = tell_surroundings(report.note, parts=parts)
        grace = self.job.stop_grace_seconds if prepared.spec.is_native else 0.0  # nobody else looks for a stop
        saves = adapter(prepared.spec.trainer.name).checkpoints.saves_when_stopped(prepared.spec)
        term = max(self.job.stop_grace_seconds, self.job.term_grace_seconds) if saves else self.job.term_grace_seconds
        escalation = Escalation(grace_seconds=grace, term_seconds=term)
        remote_nodes = RemoteNodes(
            self.job, report, self.progress, tell=None if translation is None else self._teller_of(translation)
        )
        try:
            with CaptureUploads(run_dir=self.job.run_dir, progress=self.progress, console=self.console, report=report):
                ended = self._supervise(trainer, report, escalation, remote_nodes, translation, captures, checkpoints)
        except Exception:  # our own fault must not leave a trainer that nobody watches
            trainer.kill()
            report.say(traceback.format_exc())
            cleanup = self._clean_up(trainer, report, remote_nodes, "The runner failed, and ended the trainer.")
            text = "the runner failed, and ended the trainer. Its log says where"
            self._finish(report, "failed", {"side": "pitwall", "text": text, "step": self.progress.step}, cleanup)
            return self._wait(report)
        report.commands.trainer_has_ended()
        how = ended.signal_name or f"exit code {ended.code}"
        cleanup = self._clean_up(trainer, report, remote_nodes, f"The trainer's driver ended ({how}).")
        if report.is_fenced:
            return EXIT_FENCED
        if translation is not None and captures is not None:
            translation.read_the_rest()
            self.progress.read()
            captures.finish(step=self.progress.step)
            if checkpoints is not None:
                checkpoints.look()
            has_ended_well = ended.code == 0 or (escalation.is_asked and not escalation.is_fast)
            left = translation.left()
            is_merged = has_ended_well and left.whole is None and self._merge(prepared, report, left.adapters)
            translation.finish(has_succeeded=ended.code == 0 or is_merged)
        self.progress.read()
        killed = oom_kill_count() - oom_kills
        state, cause = outcome(
            ended,
            escalation=escalation,
            progress=self.progress,
            other_trainer="" if prepared.spec.is_native else label_of(prepared.spec),
            saved_step=checkpoints.newest() if checkpoints is not None else 0,
            find_cause=lambda: exit_cause_of(
                ended=ended,
                progress=self.progress,
                run_dir=self.job.run_dir,
                oom_kills=killed,
                disk_free_bytes=shutil.disk_usage(self.job.run_dir).free,
            ),
        )
        if not self.asked_to_end.is_set():
            surroundings.join(SURROUNDINGS_SECONDS)
        self._finish(report, state, cause, cleanup)
        return self._wait(report)

    def _supervise(
        self,
        trainer: TrainerProcess,
        report: ShippedReport,
        escalation: Escalation,
        remote_nodes: RemoteNodes,
        translation: Translation | None,
        captures: RunnerCaptures | None,
        checkpoints: SavedCheckpoints | None,
    ) -> Exit:
        sampler = NodeSampler(run_dir=self.job.run_dir, run=self.job.run)
        processes = None if captures is None else WorkerSampler(captures.workers, say=report.say)
        hangs = None if translation is None else self._hang_watch(trainer, report, remote_nodes)
        over_at: float | None = None
        stop_at = 0.0
        # of one that dies at once too it is known what its node was like
        report.readings(sampler.read_if_due(time.monotonic(), trainer_pid=trainer.pid), step=self.progress.step)
        while (ended := trainer.poll()) is None:
            now = time.monotonic()
            if report.is_fenced:
                escalation.at_once(now)
            elif self.asked_to_end.is_set():
                if not escalation.is_fast:
                    report.commands.stop()
                escalation.hasten(now)
            elif report.commands.stop_wanted.is_set():
                stop_at = stop_at or now
                is_writing = captures is not None and captures.end_what_records()
                if not is_writing or now - stop_at > HURRIED_SECONDS:
                    escalation.ask(now)
            escalation.act(now, terminate=trainer.terminate, kill=trainer.kill)
            report.readings(sampler.read_if_due(now, trainer_pid=trainer.pid), step=self.progress.step)
            for role, rank, values in processes.read_if_due(now) if processes is not None else ():
                report.readings(values, step=self.progress.step, role=role, rank=rank)
            if translation is not None:
                translation.poll_if_due(now)
            if checkpoints is not None:
                checkpoints.look_if_due(now)
            self.progress.read()
            if captures is not None:
                captures.look(step=self.progress.step, now=now)
            if hangs is not None:
                hangs.look_if_due(step=self.progress.step)
            remote_nodes.watch(now, trainer=trainer.pid)
            if self.progress.is_over:
                over_at = over_at or now
                if now - over_at > OVERDUE_SECONDS:
                    escalation.overdue(now)
            trainer.wait(TICK_SECONDS)
        if self.asked_to_end.is_set():  # Ray signals the whole tree at once: the trainer may have ended first
            escalation.hasten(time.monotonic())
        return ended

    def _teller_of(self, translation: Translation) -> Callable[[str, Sequence[Mapping[str, Any]]], None]:
        """Return what writes down on which nodes a trainer runs that does not tell of them."""
        return lambda text, nodes: translation.note(text, step=self.progress.step, nodes=nodes)

    def _merge(self, prepared: PreparedRun, report: ShippedReport, adapters: Path | None) -> bool:
        """Make a whole model of the adapters that the trainer left, or of its shards; return whether that worked."""
        environ = environment_for(prepared.spec, os.environ, self.job.run_dir)
        source = MergeSource(
            spec=prepared.spec,
            python=prepared.python,
            run_dir=self.job.run_dir,
            run_root=self.job.run_root,
            environ=without_secrets(environ) | dict(prepared.launch.env),
            give_up=lambda: self.asked_to_end.is_set() or report.is_fenced,
        )
        return merge_left(source, adapters, say=report.say)

    def _hang_watch(self, trainer: TrainerProcess, report: ShippedReport, remote_nodes: RemoteNodes) -> OutsideWatch:
        """Return who watches a trainer that does not watch itself."""

        def processes() -> list[psutil.Process]:
            run, attempt = self.job.run, self.job.attempt
            return find(run=run, attempt=attempt, session=trainer.pid, helper=remote_nodes.pid)

        return OutsideWatch(run_dir=self.job.run_dir, report=report, processes=processes)

    def _clean_up(self, trainer: TrainerProcess, report: ShippedReport, remote_nodes: RemoteNodes, why: str) -> Cleanup:
        is_hurried = self.asked_to_end.is_set() or report.is_fenced
        leave_seconds = min(1.0, self.job.leave_seconds) if is_hurried else self.job.leave_seconds
        self.progress.read()
        write_seconds = self.recovery.write_seconds(is_hurried=is_hurried)
        remote_nodes.begin_end(leave_seconds, write_seconds=write_seconds, captures=self.recovery.tools)
        cleanup = kill_orphans(
            run=self.job.run,
            attempt=self.job.attempt,
            session=trainer.pid,
            helper=remote_nodes.pid,
            leave_seconds=leave_seconds,
            write_seconds=write_seconds,
            recordings=recordings(self.job.run_dir),
        )
        cleanup = remote_nodes.finish_end(cleanup, is_hurried=is_hurried)
        if not report.is_fenced:
            self.recovery.finish(report, why=why, remote=remote_nodes.left)
        if cleanup["ended"]:
            report.say(
                f"Ended {len(cleanup['ended'])} processes that the trainer left: {'; '.join(cleanup['ended'][:5])}"
            )
        return cleanup

    def _not_started(self, report: ShippedReport, error: Exception) -> int:
        if self.asked_to_end.is_set() or isinstance(error, ConsoleUnreachable):
            state, cause = "stopped", {"side": "cluster", "text": "before the trainer started"}
        elif isinstance(error, (NotPrepared, VariablesMissing)):
            state, cause = "failed", {"side": error.side, "text": str(error)}
            if isinstance(error, NotPrepared) and error.field:
                cause["field"] = error.field
        else:
            text = f"the trainer was not started: {error}"
            if isinstance(error, OSError) and error.errno:
                text = f"the trainer was not started: {self.job.run_dir} does not take files ({error.strerror})"
            state, cause = "failed", {"side": "cluster", "text": text}
        cleanup = kill_orphans(run=self.job.run, attempt=self.job.attempt, leave_seconds=0.0)
        self._finish(report, state, cause, cleanup)
        return self._wait(report)

    def _finish(self, report: ShippedReport, state: str, cause: Mapping[str, object], cleanup: Cleanup) -> None:
        hurry_until = float("inf")

        def wait(seconds: float) -> bool:
            nonlocal hurry_until
            if self.asked_to_end.wait(min(seconds, HURRIED_UPLOAD_SECONDS)):
                hurry_until = min(hurry_until, time.monotonic() + HURRIED_UPLOAD_SECONDS)
            return report.is_fenced or time.monotonic() > hurry_until

        with contextlib.suppress(OSError):
            half_done = tidy(self.job.run_dir)
            if half_done:
                report.say(f"Deleted what the trainer had not written to the end: {', '.join(half_done)}.")
        hand_over_files(
            run_dir=self.job.run_dir, progress=self.progress, console=self.console, report=report, wait=wait
        )
        report.terminal_event(state, cause=cause, cleanup=cleanup, step=self.progress.step)

    def _wait(self, report: ShippedReport) -> int:
        return EXIT_DONE if report.wait_until_done() else EXIT_FENCED


def _nsys_trace(spec: RunSpec, device: str) -> str:
    """Return what nsys is to record of a trainer that is started under it, "" for one that is not."""
    if not starts_under_nsys(spec):
        return ""
    return "nvtx" if "cpu" in (spec.hardware.device, device) else "cuda,nvtx"


def _refused(prepared: PreparedRun) -> Mapping[str, str]:
    """Return why some commands are refused, by their verbs."""
    if prepared.spec.is_native:
        return {}
    why = f"{label_of(prepared.spec)} takes no commands while it trains"
    return dict.fromkeys(("checkpoint", "set", "pin"), why)


def obey_signals(supervisor: AttemptSupervisor) -> None:
    """Make SIGTERM and SIGINT end the attempt in an orderly way."""

    def on_signal(number: int, _frame: object) -> None:
        print(f"Asked to end ({signal.Signals(number).name}).", flush=True)
        supervisor.asked_to_end.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
