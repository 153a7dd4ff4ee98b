"""One run of the engine around its loop: read the spec, join the cluster, load, train, tell how it ended."""

import contextlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from jobs.catalog.algorithm import is_in
from jobs.catalog.role import ROLES, Role, roles_of
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.checkpoints.checkpoint import CheckpointSource, LoopState
from jobs.engine.checkpoints.resume import (
    DataFingerprint,
    carry_best,
    check_data,
    checkpoint_to_resume,
    fingerprint,
    first_rendered,
)
from jobs.engine.checkpoints.saving import Saver
from jobs.engine.command_inbox import CommandInbox
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.reward_files import check_reward_model
from jobs.engine.data.teacher_files import check_teacher
from jobs.engine.data.text import TextModel
from jobs.engine.data.training_data import read_training_data
from jobs.engine.device import Device, load_device
from jobs.engine.failures.failure_cause import NAMED, Diverged, NonFinite, RunStopped, SyncGap, cause_of, is_full
from jobs.engine.problem import RunProblem
from jobs.engine.reporting.run_report import RunReport
from jobs.engine.rollouts.mixed_reward import open_mixed
from jobs.engine.rollouts.reward import RewardFailed, limits_of
from jobs.engine.workers.node_placement import RunNode, placement_note
from jobs.engine.workers.worker import WorkerFailed
from jobs.engine.workers.worker_group import WorkerGroup
from profiling import profile
from profiling.counted import counted
from profiling.profile import mark

FINISHED, STOPPED, FAILED = 0, 10, 1
ROLE_CLASSES = {role.id: role.worker for role in ROLES.values() if role.worker}
"""Which class each role's actor runs."""


def run_session(run_dir: Path, *, device: str | None = None, classes: Mapping[str, str] = ROLE_CLASSES) -> int:
    """Train the spec in `run_dir` and return the exit code. `classes` lets a test put in a broken role."""
    run_dir.mkdir(parents=True, exist_ok=True)
    report = RunReport(run_dir, attempt=attempt_of(run_dir))
    session = Session(run_dir, report, device=device, classes=classes)
    try:
        return session.run()
    except RunStopped:
        report.note("Stopped before the first step; nothing was trained.")
        report.state("done", "Stopped before the first step")
        return STOPPED
    except BaseException as error:
        report.fetch_lines()
        error = session.behind(error)
        if isinstance(error, WorkerFailed):
            report.fetch_last_lines(error.role, error.rank, node=session.node_of(error.role, error.rank))
        if not isinstance(error, (RunProblem, KeyboardInterrupt)):
            traceback.print_exc()
        cause = cause_of(error, step=session.step, log_tail=report.log_tail)
        session.abandon_captures(str(cause["text"]))
        print(cause["text"], file=sys.stderr, flush=True)
        with contextlib.suppress(
            OSError
        ):  # a full disk: the text above is in the driver's log, and the exit code stands
            report.state("failed", str(cause["text"]), step=session.step, cause=cause)
        return FAILED
    finally:
        session.close()
        report.close()


def attempt_of(run_dir: Path) -> int:
    """Return the attempt: PITWALL_ATTEMPT, else the number in the directory's name (`a2`), else 1."""
    number = os.environ.get("PITWALL_ATTEMPT", "")
    match = re.fullmatch(r"a(\d+)", run_dir.name)
    return int(number) if number.isdigit() else int(match.group(1)) if match else 1


def _class_of(role: Role, spec: RunSpec, classes: Mapping[str, str]) -> str:
    """Return the class of a role's actors: that of `classes`, or where it is the usual one what the run needs."""
    chosen = classes[role.id]
    return role.worker_of(spec) if chosen == role.worker else chosen


class Session:
    """The run's surroundings; `close` ends every actor."""

    def __init__(self, run_dir: Path, report: RunReport, *, device: str | None, classes: Mapping[str, str]) -> None:
        self._run_dir, self._report, self._device_name, self._classes = run_dir, report, device, classes
        self._commands = CommandInbox(run_dir / "commands.jsonl")
        self._workers: WorkerGroup | None = None
        self._loop: Any = None
        self._reward: Any = None

    @property
    def step(self) -> int:
        """The step under way, 0 before the first."""
        return self._loop.step if self._loop is not None else 0

    def abandon_captures(self, why: str) -> None:
        """Say of captures under way that the run has failed; never raises."""
        if self._loop is not None:
            self._loop.captures.abandon(why)

    def behind(self, error: BaseException) -> BaseException:
        """Return the failure of a worker that stands behind an error of the driver's own, else the error itself.

        A full disk, and what names who is at fault, stand for themselves.
        """
        if self._workers is None or isinstance(error, NAMED) or not isinstance(error, Exception) or is_full(error):
            return error
        return self._workers.first_failure(step=self.step) or error

    def node_of(self, role: str, rank: int) -> RunNode | None:
        """Return where a worker sits; None while there are none."""
        return self._workers.node_of(role, rank) if self._workers is not None else None

    def run(self) -> int:
        """Load, train, and return the exit code."""
        report = self._report
        with mark("load", step=0):
            report.state("loading", "Reading the spec")
            spec = self._read_spec()
            profile.configure(spec.profile.marks)
            checkpoint = checkpoint_to_resume(self._run_dir, spec)
            if checkpoint is not None:
                report.state("loading", f"Checking {checkpoint.called}", step=checkpoint.state.step)
                checkpoint.check()
            report.state("loading", "Joining the cluster")
            self._join_cluster()
            device = load_device(self._choose_device(spec))
            report.state("loading", "Waiting for a place on the cluster")
            workers = self._workers = WorkerGroup(
                spec, device, log_dir=str(self._run_dir / "log"), on_answer=report.answer, check=self._check_stop
            )
            who_runs_where, nodes = placement_note([(w.role, w.rank, w.node) for w in workers.all()])
            if nodes:
                report.note(who_runs_where, step=0, nodes=nodes)
            report.follow(workers.log_queue)
            import jobs.engine.loop  # noqa: F401  # and torch with it, while Ray starts the actors

            report.state("loading", f"Starting {len(workers.all())} workers")
            text = TextModel(model_folder(spec.model, with_weights=False), now=first_rendered(checkpoint))
            check_teacher(spec)
            check_reward_model(spec)
            starting = self._start_roles(spec, workers, device, text)
            report.state("loading", "Reading the data")
            material = self._read_material(spec, text, workers)
            if checkpoint is not None:
                check_data(checkpoint, material.train)
            self._reward = material.reward
            report.state("loading", "Loading vLLM and DeepSpeed" if workers.generators else "Loading DeepSpeed")
            self._gather_roles(workers, starting)
            self._tell_of_padding(spec, workers)
            self._tell_of_adapters(workers, step=checkpoint.state.step if checkpoint is not None else 0)
            loop_of = self._make_loop(spec, workers, material, checkpoint)
        report.driver_spans(profile.drain())
        report.state("ready", "All workers have the model")
        self._loop = loop_of
        try:
            is_finished = self._loop.run()
        except (NonFinite, Diverged, SyncGap, RewardFailed):  # the ranks are well, so a checkpoint on its way arrives
            with contextlib.suppress(Exception):
                self._loop.saver.finish()
            raise
        self._leave(workers)
        how = "Trained to the last step" if is_finished else f"Stopped after step {self.step}"
        report.state("done", f"{how}; handing over the files", step=self.step)
        return FINISHED if is_finished else STOPPED

    def _read_spec(self) -> RunSpec:
        path = self._run_dir / "spec.json"
        try:
            return parse_spec(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise RunProblem("spec", f"There is no spec.json in {self._run_dir.name!r}.") from error
        except SpecInvalid as error:
            raise RunProblem(error.problems[0].field, str(error)) from error
        except ValueError as error:
            raise RunProblem("spec", f"spec.json is not JSON: {error}.") from error

    def _join_cluster(self) -> None:
        self._commands.watch_signals()
        if not ray.is_initialized():
            ray.init(
                address=os.environ.get("RAY_ADDRESS") or "auto",
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
            )
        self._commands.watch_signals()

    def _choose_device(self, spec: RunSpec) -> str:
        wanted = self._device_name or spec.hardware.device
        if wanted != "auto":
            return wanted
        return "cuda" if ray.cluster_resources().get("GPU", 0) > 0 else "cpu"

    def _check_stop(self) -> None:
        self._commands.poll()
        if self._commands.is_stopping:
            raise RunStopped

    def _start_roles(self, spec: RunSpec, workers: WorkerGroup, device: Device, text: TextModel) -> list[Any]:
        """Start all roles at once, the slowest import first: they overlap on the cores there are.

        An engine on a GPU of the policy's measures what is free there, so it starts alone, and sleeps once it is there.
        """
        starting = []
        for role in sorted(roles_of(spec), key=lambda role: not role.generates):
            if not (members := workers.by_role.get(role.id, [])):
                continue  # the policy's ranks hold it
            wants: dict[str, object] = {"spec": spec, "device": device.name}
            if role.generates:
                wants["eos_ids"] = text.eos_ids
            if role.is_trained:
                host, port = workers.address_of(members[0])
                wants |= {"world_size": len(members), "host": host, "port": port}
            for worker in members:
                own: dict[str, object] = {"rank": worker.rank} if role.is_trained else {}
                if role.share_devices(spec) and device.gpus_per_worker:
                    own["visible_devices"] = workers.devices_of(worker)
                starting.append(worker.start(_class_of(role, spec, self._classes), **wants, **own))
            if role.share_devices(spec) and device.gives_back_memory:
                self._gather_roles(workers, starting)
                starting.clear()
        return starting

    def _gather_roles(self, workers: WorkerGroup, starting: list[Any]) -> None:
        workers.gather(starting, interruptible=True)

    def _read_material(self, spec: RunSpec, text: TextModel, workers: WorkerGroup) -> Any:
        from jobs.engine.loop import Material
        from jobs.engine.rollouts.held_out import read_sets
        from jobs.engine.rollouts.reward_model_calls import RewardModelCalls

        read = read_training_data(spec, text, inputs_dir=self._run_dir / "inputs")
        for note in read.notes:
            self._report.note(note)
        reward = None
        if is_in(spec.algorithm, "rl"):
            ask = RewardModelCalls(workers, pad_id=text.pad_id, step=lambda: self.step)
            ask_model = ask if spec.needs("reward") else None
            reward = open_mixed(spec, limits_of(spec, check=self._check_stop, ask_model=ask_model))
            for note in reward.notes:
                self._report.note(note)
        return Material(
            text=text,
            train=read.examples,
            held_out=read.held_out,
            reward=reward,
            sets=read_sets(spec, text),
            data=read.data,
        )

    def _tell_of_padding(self, spec: RunSpec, workers: WorkerGroup) -> None:
        """Note why sequences are padded, where they were to be packed."""
        (reason,) = workers.gather([workers.policies[0].call("packing_problem")])
        if reason and spec.knob("train.packing"):
            self._report.note(
                f"Sequences of this model are padded, not packed: {reason}. A budget of tokens (train.dynamic_batch) "
                "puts those of like length together, so that little is padded."
            )

    def _tell_of_adapters(self, workers: WorkerGroup, *, step: int) -> None:
        """Note how much of the policy is trained, where that is not all of it."""
        (share,) = workers.gather([workers.policies[0].call("trained_share")])
        if share is not None:
            self._report.note(str(share), step=step)
            self._report.metrics(share.metrics(), step=step)

    def _make_loop(
        self, spec: RunSpec, workers: WorkerGroup, material: Any, checkpoint: CheckpointSource | None
    ) -> Any:
        from jobs.engine.loop import Loop
        from jobs.engine.own_algorithm import algorithm_of

        facts = fingerprint(material.train)
        self._report.note(counted(f"Training data: {facts['num_examples']:,} examples"), data=facts)
        data: DataFingerprint = {**facts, "rendered_at": material.text.now.isoformat()}
        saver = Saver(spec=spec, run_dir=self._run_dir, workers=workers, report=self._report, data=data)
        if checkpoint is not None:
            self._restore(checkpoint, workers, saver)
        return Loop(
            spec=spec,
            run_dir=self._run_dir,
            algorithm=algorithm_of(spec),
            material=material,
            workers=workers,
            report=self._report,
            commands=self._commands,
            saver=saver,
            state=checkpoint.state if checkpoint is not None else LoopState(step=0, num_consumed=0),
        )

    def _restore(self, checkpoint: CheckpointSource, workers: WorkerGroup, saver: Saver) -> None:
        """Bring the checkpoint into the policy ranks, and the best model so far into this attempt."""
        report, state = self._report, checkpoint.state
        report.state("loading", f"Resuming from {checkpoint.called}", step=state.step)
        begin = time.perf_counter()
        checkpoint.restore(workers)
        seconds = time.perf_counter() - begin
        then, now = checkpoint.index["ranks"], len(workers.policies)
        ranks = counted(f"{now} ranks" if then == now else f"{then} ranks then, {now} now")
        report.note(f"Resumed from {checkpoint.called} in {seconds:.2g} s ({ranks})", step=state.step, seconds=seconds)
        if state.best_step < 0:
            return
        about = carry_best(checkpoint, self._run_dir)
        if about is not None:
            metrics = {key: value for key, value in about.items() if key != "step"}
            saver.tell_model("best", step=state.best_step, metrics=metrics)
        else:
            report.note(
                f"The best model so far, of step {state.best_step} with score {state.best_score:.3g}, is not in this "
                "attempt's files; model/best comes with the first better one.",
                step=state.step,
            )

    def _leave(self, workers: WorkerGroup) -> None:
        """Let the ranks of trained roles leave their groups in order, then fetch the last lines."""
        workers.gather([worker.call("close") for worker in workers.all() if ROLES[worker.role].is_trained])
        self._report.fetch_lines()

    def close(self) -> None:
        """End the reward's process and every actor, and leave the cluster."""
        if self._reward is not None:
            self._reward.close()
        self._report.unfollow()
        if self._workers is not None:
            with contextlib.suppress(Exception):  # the cluster may be gone, and its actors with it
                self._workers.close()
        if self._loop is not None:
            self._loop.saver.give_up()
        ray.shutdown()
