"""The training loop: one controller, on the driver. A step reads like the algorithm it is.

What the parts do stands in rollout, algorithms/, policy, weights, evaluation and checkpoint; where they run stands in
workers/worker_group.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.live_change import differing_values
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import zero_variance_fraction
from jobs.engine.algorithm import Algorithm
from jobs.engine.batch import Batch
from jobs.engine.captures import EngineCaptures
from jobs.engine.checkpoints.checkpoint import LoopState
from jobs.engine.checkpoints.saving import Saver
from jobs.engine.command_inbox import CommandInbox
from jobs.engine.data.examples import Example
from jobs.engine.data.model_files import model_folder, num_layers
from jobs.engine.data.sources import ExamplesInMemory, TrainingData
from jobs.engine.data.text import TextModel
from jobs.engine.failures.divergence import DivergenceGuards, Sign
from jobs.engine.failures.divergence_end import end_if_diverged
from jobs.engine.failures.failure_cause import RunStopped
from jobs.engine.failures.hang_watch import HangWatch
from jobs.engine.failures.sync_guard import SyncGuard
from jobs.engine.kl_controller import coefficient_of, moved
from jobs.engine.labeled_step import compared
from jobs.engine.live_changes import LiveChanges
from jobs.engine.logprob_gap import gap_sums
from jobs.engine.optimizer_steps import OptimizerSteps
from jobs.engine.reporting.console_log import eval_line, step_line
from jobs.engine.reporting.run_report import RunReport, folder_bytes
from jobs.engine.role_calls import Shares, policy_scores, reference_logprobs, scores_of, shares_of, start_scores
from jobs.engine.roles.weights import Turns, weight_sync
from jobs.engine.rollouts.evaluation import Evaluation, evaluate_sets
from jobs.engine.rollouts.held_out import HeldOutSet, own_set, ranking_score, require_best_metric
from jobs.engine.rollouts.held_out_pairs import PairSets, batch_of
from jobs.engine.rollouts.mixed_reward import MixedReward
from jobs.engine.rollouts.reward_moments import RewardMoments
from jobs.engine.rollouts.reward_report import RewardReport, without_skipped
from jobs.engine.rollouts.rollout import roll_out
from jobs.engine.step_rollout import StepRollout, max_generations_of
from jobs.engine.teaching import taught
from jobs.engine.workers.worker import Pending
from jobs.engine.workers.worker_group import WorkerGroup
from profiling import profile
from profiling.profile import mark

_NUM_PROBES = 8
_TOLD_SCORES = (
    ("reward", "reward/mean"),
    ("loss", "loss/sft"),
    ("loss", "loss/pairs"),
    ("loss", "loss/labels"),
    ("gap", "teacher/gap"),
)
"""By which metric of its step a checkpoint is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a run learns from: examples ready to use, and how completions are scored (None in SFT).

    `sets` are held-out ones besides the data's own. `data` is where examples come from, `train` alone where it is None.
    """

    text: TextModel
    train: Sequence[Example]
    held_out: Sequence[Example]
    reward: MixedReward | None
    sets: Sequence[HeldOutSet] = ()
    data: TrainingData | None = None


class Loop:
    """One attempt of a run, from the step after `state` to the last."""

    def __init__(
        self,
        *,
        spec: RunSpec,
        run_dir: Path,
        algorithm: Algorithm,
        material: Material,
        workers: WorkerGroup,
        report: RunReport,
        commands: CommandInbox,
        saver: Saver,
        state: LoopState,
    ) -> None:
        self.spec, self.run_dir, self.algorithm, self.material = spec, run_dir, algorithm, material
        self.workers, self.report, self.commands, self.saver = workers, report, commands, saver
        self.seed = spec.int_knob("train.seed")
        self.state = state
        self.start = self.step = state.step
        self.weights = weight_sync(workers)
        self._turns = Turns(self.weights)
        own_data = TrainingData(
            {"data": ExamplesInMemory(material.train, seed=self.seed)}, weights=[1.0], seed=self.seed
        )
        self._data = material.data or own_data
        self._data.seek(state.sources or {"data": {"taken": state.num_consumed}})
        self._scores: dict[str, float] = {}
        self._telling_seconds = 0.0  # that the metrics of the step before took, which could not hold it
        sync_guard = SyncGuard(
            precision=str(spec.knob("memory.precision")),
            num_layers=num_layers(model_folder(spec.model, with_weights=False)),
        )
        self._optimizer_steps = OptimizerSteps(workers, report, sync_guard)
        self._pairs: PairSets | None = None
        if algorithm.rewards is not None:
            self._pairs = PairSets(spec, algorithm, workers, pad_id=material.text.pad_id)
        self._reward_report = RewardReport(
            counts_failures=self.algorithm.advantages is not None and spec.knob("reward.on_failure") != "stop"
        )
        own = [own_set(spec, material.held_out)] if material.held_out else []
        self._held_out = [*own, *material.sets]
        self._rollout = StepRollout(
            workers=workers,
            turns=self._turns,
            report=report,
            text=material.text,
            reward=material.reward,
            take=lambda count: self._take(count),
            moments=RewardMoments.of(state.reward_moments),
        )
        self.captures = EngineCaptures(workers=workers, report=report, commands=commands, run_dir=run_dir)
        self.hang_watch = HangWatch(workers=workers, report=report, run_dir=run_dir)
        self._guards, self._signs = DivergenceGuards(spec), list[Sign]()
        self._changes = LiveChanges(spec=spec, workers=workers, report=report, commands=commands)

    def run(self) -> bool:
        """Train to the last step, or until told to stop. Return True if the run finished, False if it was stopped."""
        self.captures.report_profilers()
        self.captures.watch()
        self.hang_watch.start()
        if self.weights is not None:
            with mark("weight_sync", step=self.start):
                self.weights.connect()
                self.weights.sync(step=self.start)
            self.hang_watch.progress(self.start)
        if self.start == 0:  # a checkpoint is written after the evaluation of its step
            self._evaluate(self._held_out)
        self.report.state("training", step=self.start)
        while self.step < self.spec.num_steps and not self._is_stopping():
            self.step += 1
            self._take_changes()
            self.captures.before_step(self.step)
            before = self.state
            try:
                seconds = self._timed(self._reinforce if is_in(self.spec.algorithm, "rl") else self._supervise)
            except RunStopped:
                self._drop_step(before)
                break
            self.captures.after_step(self.step, seconds=seconds)
            self.hang_watch.progress(self.step)
            self.state = replace(self.state, step=self.step)
            self._take_pins()
            self.saver.poll()
            self._heed_guards()
            if self.step < self.spec.num_steps:
                usual = self.spec.int_knob("eval.every_steps")
                self._evaluate([one for one in self._held_out if one.is_due(self.step, usual=usual)])
            if (
                self.commands.take_checkpoint() or self._is_due("checkpoint.every_steps")
            ) and self.step < self.spec.num_steps:
                self._turns.of_policy(step=self.step)
                self.saver.checkpoint(self.state, self._scores)
            self.hang_watch.progress(self.step)  # after evaluating and saving, which may take longer than steps
        self.hang_watch.end()
        is_finished = self.step >= self.spec.num_steps
        self._finish(is_finished=is_finished)
        return is_finished

    # -- one step --

    def _reinforce(self, step: int) -> dict[str, float]:
        """Roll out, score, compare, update, sync."""
        spec, workers = self.spec, self.workers
        group_size = spec.int_knob("rollout.samples_per_prompt")
        sampled = self._rollout.draw(spec, step=step)
        rollout, scores, rewards_B = sampled.drawn.rollout, sampled.drawn.scores, sampled.drawn.rewards_B
        self.state = replace(self.state, reward_moments=self._rollout.moments.to_state())

        batch = without_skipped(rollout.batch(pad_id=self.material.text.pad_id), scores)
        shares = self._shares(batch, num_updates=spec.int_knob("train.updates_per_rollout"))

        values: list[Pending] = []
        if spec.needs("critic"):
            critic = workers.trained["critic"]
            values = start_scores(critic, "values", batch, shares, step=step, phase="old_logprobs")
        reference = None
        if workers.reference is not None and spec.needs("reference"):  # a coefficient set to 0 asks for none
            reference = workers.reference.call("logprobs", batch, step=step, phase="reference")
        if self.algorithm.needs_old_logprobs(spec):
            with mark("old_logprobs", step=step):
                old_logprobs_BL = policy_scores(workers, "logprobs", batch, shares, step=step, phase="old_logprobs")
            self._check_sync(batch, old_logprobs_BL, synced_at=step - 1)
            batch = replace(batch, old_logprobs_BL=old_logprobs_BL)
        if values:
            with mark("old_logprobs", step=step):
                batch = replace(batch, values_BL=scores_of(workers, values, batch, shares))
        with mark("reference", step=step):
            if reference is not None:
                batch = replace(batch, reference_logprobs_BL=workers.gather([reference])[0])
            elif spec.needs("reference"):
                batch = replace(batch, reference_logprobs_BL=reference_logprobs(workers, batch, shares, step=step))

        batch, teacher_says = self._taught(batch, shares)

        with mark("advantages", step=step):
            batch = replace(batch, rewards_B=rewards_B)
            kl_coefficient = coefficient_of(spec, self.state.kl_coefficient)
            if kl_coefficient is not None:
                batch = replace(batch, kl_coefficients_B=torch.full((len(rewards_B),), kl_coefficient))
            if self.algorithm.advantages is not None:
                estimate = self.algorithm.advantages(batch, spec)
                batch = replace(batch, advantages_BL=estimate.advantages_BL, returns_BL=estimate.returns_BL)

        with mark("update", step=step) as update_mark:
            updated = self._optimizer_steps.take(spec, batch, shares, step=step)

        if self.weights is not None:
            with mark("weight_sync", step=step):
                self.weights.sync(step=step)
            updated["sync/bytes"] = float(self.weights.num_bytes)
        if kl_coefficient is not None:
            after = moved(spec, kl_coefficient, updated, num_samples=len(rewards_B))
            self.state = replace(self.state, kl_coefficient=after)
            updated["kl/coefficient"] = kl_coefficient
        if group_size > 1:
            updated["groups/zero_variance_fraction"] = zero_variance_fraction(rewards_B, group_size=group_size)
        if max_generations_of(spec) > 1:
            updated |= sampled.metrics

        lengths_B = rollout.lengths
        return (
            updated
            | teacher_says
            | {
                **self._reward_report.metrics(scores, lambda text: self.report.note(text, step=step)),
                **sampled.drawn.shaping,
                **self._rollout.moments.metrics(),
                "response/length_mean": float(lengths_B.mean()),
                "response/length_p95": float(torch.quantile(lengths_B, 0.95)),
                "response/truncated_fraction": rollout.truncated_share,
                "throughput/rollout_tokens_per_second": sampled.num_new_tokens / self._rollout.seconds,
            }
            | batch.learned(seconds=update_mark.seconds)
        )

    def _supervise(self, step: int) -> dict[str, float]:
        """Take a batch of given answers, or of pairs of them, and learn them."""
        with mark("data_wait", step=step):
            examples = self._take(self.spec.int_knob("train.batch_size"))
            batch = batch_of(examples, pad_id=self.material.text.pad_id)
        shares = self._shares(batch, num_updates=1)
        if self.spec.needs("reference"):
            with mark("reference", step=step):
                logprobs_BL = reference_logprobs(self.workers, batch, shares, step=step)
                batch = replace(batch, reference_logprobs_BL=logprobs_BL)
        if is_in(self.spec.algorithm, "labeled"):
            pad_id = self.material.text.pad_id
            batch = compared(self.spec, self.workers, batch, examples, shares, step=step, pad_id=pad_id)
        batch, teacher_says = self._taught(batch, shares)
        with mark("update", step=step) as update_mark:
            updated = self._optimizer_steps.take(self.spec, batch, shares, step=step)
        return updated | teacher_says | batch.learned(seconds=update_mark.seconds)

    # -- its parts --

    def _taught(self, batch: Batch, shares: Shares) -> tuple[Batch, dict[str, float]]:
        """Return the batch with what the teacher says of it, and metrics of the teacher; as it is without one."""
        if not self.spec.needs("teacher"):
            return batch, {}
        with mark("reference", step=self.step):
            return taught(self.workers, batch, shares, step=self.step)

    def _take(self, count: int) -> list[Example]:
        """Return the next examples of the data; remember how many were consumed."""
        begin = self.state.num_consumed
        examples = self._data.take(begin, count)
        self.state = replace(self.state, num_consumed=begin + count, sources=self._data.positions)
        return examples

    def _shares(self, batch: Batch, *, num_updates: int) -> Shares:
        """Return which sequences of the step each rank takes in each update."""
        num_ranks = len(self.workers.policies)
        return shares_of(self.spec, batch, num_ranks=num_ranks, num_updates=num_updates, step=self.step)

    def _drop_step(self, before: LoopState) -> None:
        """Take back the step under way, whose responses will not be scored: nothing was learned from them yet."""
        self.report.note(f"Step {self.step} was dropped: the run was stopped while responses were scored.")
        self.step -= 1
        self.state = before

    def _probe_sync(self) -> None:
        """Measure the gap of the last sync, after which no rollout comes."""
        examples = self.material.train[:_NUM_PROBES]
        self._turns.of_engines(step=self.step)
        rollout = roll_out(
            self.workers, examples, samples_per_prompt=1, seed=self.seed, step=self.step + 1, phase="eval"
        )
        self._turns.of_policy(step=self.step)
        batch = rollout.batch(pad_id=self.material.text.pad_id)
        calls = [policy.call("logprobs", batch, step=self.step, phase="eval") for policy in self.workers.policies]
        logprobs_BL: Tensor = self.workers.gather(calls)[0]
        self._check_sync(batch, logprobs_BL, synced_at=self.step)

    def _check_sync(self, batch: Batch, logprobs_BL: Tensor, *, synced_at: int) -> None:
        """Compare a rollout's log-probabilities with the trainer's. Raises: SyncGap, NonFinite."""
        assert batch.rollout_logprobs_BL is not None
        gap = gap_sums(batch.rollout_logprobs_BL, logprobs_BL, batch.mask_BL)
        self._optimizer_steps.check_sync(gap, synced_at=synced_at)

    # -- between steps --

    def _timed(self, body: Callable[[int], dict[str, float]]) -> float:
        """Run a step and tell its metrics: the algorithm's, each phase's seconds, and what telling cost. Return its
        seconds.
        """
        self.report.take_seconds()  # what was told between the steps is no part of one
        begin = time.perf_counter()
        metrics = body(self.step)
        spans = profile.drain()
        self.report.driver_spans(spans)
        phases: dict[str, float] = {}
        for span in spans:
            if span.depth == 0 and span.step == self.step:
                key = f"time/{span.phase}_seconds"
                phases[key] = phases.get(key, 0.0) + span.duration / 1e9
        if not (self.spec.needs("reference") or self.spec.needs("teacher")):
            phases.pop("time/reference_seconds", None)  # what there is not takes no time, not 0 s
        elif self.workers.reference is not None:
            # It works beside the policy ranks; the driver's own span is only the rest it had to wait for.
            phases["time/reference_seconds"] = self.report.phase_seconds["reference", "reference"]
        self.report.readings(step=self.step)
        metrics |= phases | {
            **self._data.metrics,
            "time/event_seconds": self._telling_seconds + self.report.take_seconds(),
            "time/step_seconds": time.perf_counter() - begin,
        }
        self.report.metrics(metrics, step=self.step)
        self._signs = list(self._guards.see(self.step, metrics))
        self._scores = {key: metrics[name] for key, name in _TOLD_SCORES if name in metrics}
        self.report.say(step_line(metrics, step=self.step, num_steps=self.spec.num_steps))
        self._telling_seconds = self.report.take_seconds()
        return metrics["time/step_seconds"]

    def _is_stopping(self) -> bool:
        self.commands.poll()
        return self.commands.is_stopping

    def _take_changes(self) -> None:
        """Take the knobs that people changed since the last step: this step is the first with them."""
        changed = self._changes.take(self.spec, step=self.step)
        if changed is not self.spec:
            if "algorithm.kl_coefficient" in differing_values(self.spec, changed):
                self.state = replace(self.state, kl_coefficient=None)  # one that moves to a target begins anew
            self.spec = changed
            self.saver.take_spec(changed)

    def _heed_guards(self) -> None:
        """Note the signs of divergence, or end the run by them. Raises: Diverged."""
        end_if_diverged(
            self._guards,
            self._signs,
            saver=self.saver,
            note=lambda text: self.report.note(text, step=self.step),
            start=self.start,
            save=self._save_at_once,
        )

    def _save_at_once(self) -> None:
        self._turns.of_policy(step=self.step)
        self.saver.checkpoint(self.state, self._scores)
        self.saver.finish()

    def _take_pins(self) -> None:
        """Pin and release checkpoints, before one is written for which others go."""
        self.commands.poll()
        for step, is_pinned in self.commands.take_pins():
            self.saver.pin(step, is_pinned=is_pinned)

    def _is_due(self, knob: str) -> bool:
        every = self.spec.int_knob(knob)
        return every > 0 and self.step % every == 0

    def _evaluate(self, sets: Sequence[HeldOutSet]) -> None:
        """Evaluate the policy on these held-out sets; export it as `model/best` if it is the best so far."""
        if not sets:
            return
        self.report.state("evaluating", step=self.step)
        self._turns.of_engines(step=self.step)
        with mark("eval", step=self.step) as eval_mark:
            try:
                evaluated = self._evaluated(sets)
            except RunStopped:
                self.report.note("The evaluation was dropped: the run was stopped while responses were scored.")
                return
        self.report.metrics(evaluated.metrics | {"time/eval_seconds": eval_mark.seconds}, step=self.step)
        self.report.say(eval_line(evaluated.metrics, step=self.step, seconds=eval_mark.seconds))
        self.report.samples(
            evaluated.samples,
            step=self.step,
            is_eval=True,
            shown=self.spec.int_knob("logging.samples_per_step"),
            text=self.material.text,
            num_logprobs=self.spec.int_knob("logging.token_logprobs"),
        )
        self.report.driver_spans(profile.drain())
        self.hang_watch.progress(self.step)
        self.state = replace(self.state, evaluated_step=self.step)
        if self.step == self.start and sets == self._held_out:
            require_best_metric(self.spec, evaluated.metrics)
        usual = evaluated.score if sets[0] is self._held_out[0] else None
        score = ranking_score(self.spec, evaluated.metrics, usual=usual)
        if score is not None:
            self._scores["score"] = score
            self._keep_best(score, evaluated.metrics)
        self.report.state("training", step=self.step)

    def _keep_best(self, score: float, metrics: dict[str, float]) -> None:
        """Export the policy as `model/best` if it has learned something, and no earlier one had this score."""
        best = self.state.best_score
        if self.step > 0 and (best is None or score > best):
            self.state = replace(self.state, best_score=score, best_step=self.step)
            self._turns.of_policy(step=self.step)
            self.saver.model("best", step=self.step, metrics=metrics)

    def _evaluated(self, sets: Sequence[HeldOutSet]) -> Evaluation:
        material = self.material
        if self._pairs is not None:
            return self._pairs.evaluate(sets, step=self.step)
        return evaluate_sets(self.workers, sets, reward=material.reward, text=material.text, step=self.step)

    def _finish(self, *, is_finished: bool) -> None:
        """Evaluate the last policy, save it, and hand it over."""
        self.captures.finish(self.step)
        if self.step > 0:
            if self.weights is not None:
                self._probe_sync()
            if is_finished and self.state.evaluated_step != self.step:
                self._evaluate(self._held_out)
            self._turns.of_policy(step=self.step, is_renewed=True)  # nothing is drawn any more
            self._take_pins()
            if self.step > self.start:  # else it is there, in the attempt that this one goes on from
                self.saver.checkpoint(self.state, self._scores)
                self.saver.finish()
            best = {"best_step": self.state.best_step, "best_score": self.state.best_score}
            self.saver.model("final", step=self.step, metrics=best)
        self.report.artifact(
            "tensorboard", artifact="tensorboard", path="tb", step=self.step, size=folder_bytes(self.run_dir / "tb")
        )
