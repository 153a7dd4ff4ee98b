"""The optimizer steps of a training step: of the policy and, beside them, of the critic, if there is one."""

from collections.abc import Sequence

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from jobs.engine.failures.failure_cause import NonFinite
from jobs.engine.failures.sync_guard import SyncGuard
from jobs.engine.logprob_gap import GapSums, total
from jobs.engine.optimizer_knobs import OF_CRITIC, OF_POLICY
from jobs.engine.reporting.run_report import RunReport
from jobs.engine.role_calls import Shares, start_update, update_metrics
from jobs.engine.roles.trained_model import Update
from jobs.engine.schedule import learning_rate
from jobs.engine.value_estimates import value_metrics
from jobs.engine.workers.worker_group import WorkerGroup


class OptimizerSteps:
    """Takes them, counts those that were skipped, and checks that rollouts came from the weights that learn."""

    def __init__(self, workers: WorkerGroup, report: RunReport, sync_guard: SyncGuard) -> None:
        self._workers, self._report, self._sync_guard = workers, report, sync_guard
        self._num_skipped: dict[str, int] = {}  # optimizer steps in a row, by role

    def take(self, spec: RunSpec, batch: Batch, shares: Shares, *, step: int) -> dict[str, float]:
        """Have each trained role learn its shares of the batch; return the metrics of all of them.

        In the critic's warm-up it learns alone. Raises: NonFinite, SyncGap, WorkerFailed.
        """
        if batch.values_BL is None:
            return self._of_policy(spec, batch, shares, step)
        assert batch.returns_BL is not None
        rate = learning_rate(spec, step, knobs=OF_CRITIC)
        ranks = self._workers.trained["critic"]
        learning = start_update(ranks, batch, shares, learning_rate=rate, step=step)
        is_alone = step <= spec.int_knob("algorithm.critic_warmup_steps")
        of_policy = {} if is_alone else self._of_policy(spec, batch, shares, step)
        per_rank: list[list[Update]] = self._workers.gather(learning)
        self._count_skipped(spec, per_rank[0], role="critic", step=step)
        return (
            of_policy
            | update_metrics(per_rank, learning_rate=rate, prefix="value")
            | value_metrics(batch.values_BL, batch.returns_BL, batch.mask_BL)
        )

    def check_sync(self, gap: GapSums, *, synced_at: int) -> None:
        """Tell how far vLLM's log-probabilities are from the trainer's since the sync of step `synced_at`.

        Raises: SyncGap if they are further apart than rounding can explain; NonFinite if they are no numbers.
        """
        self._report.metrics(gap.metrics(), step=synced_at)
        self._sync_guard.check(gap, synced_at=synced_at)

    def _of_policy(self, spec: RunSpec, batch: Batch, shares: Shares, step: int) -> dict[str, float]:
        """Take the policy's on all ranks; return their metrics, averaged over the optimizer steps."""
        rate = learning_rate(spec, step)
        started = start_update(self._workers.policies, batch, shares, learning_rate=rate, step=step)
        per_rank: list[list[Update]] = self._workers.gather(started)
        gaps = [update.gap for updates in per_rank for update in updates if update.gap is not None]
        if gaps:
            self.check_sync(total(gaps), synced_at=step - 1)
        self._count_skipped(spec, per_rank[0], role="policy", step=step)
        return update_metrics(per_rank, learning_rate=rate, prefix="policy")

    def _count_skipped(self, spec: RunSpec, updates: Sequence[Update], *, role: str, step: int) -> None:
        """Tell of a role's optimizer steps that were skipped. Raises: NonFinite after too many in a row."""
        of_critic = role == "critic"
        knobs, whose = (OF_CRITIC, "critic's ") if of_critic else (OF_POLICY, "")
        for update in updates:
            in_a_row = self._num_skipped[role] = self._num_skipped.get(role, 0) + 1 if update.is_skipped else 0
            if in_a_row > spec.int_knob("optimizer.max_skipped_steps"):
                raise NonFinite(
                    f"The {whose}gradient was not finite {in_a_row} times in a row, up to step {step}; the "
                    f"weights are those before. Lower {knobs.learning_rate}, or go on from an earlier checkpoint."
                )
        if any(update.is_skipped for update in updates):
            whose = "the critic's" if of_critic else "its"
            self._report.note(f"Step {step} was skipped: {whose} gradient is not finite.", step=step)
