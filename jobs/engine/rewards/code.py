"""Whether a response's code passes the row's tests, each run in a box of its own (jobs/engine/box)."""

from collections.abc import Sequence

from jobs.box.seccomp import NotConfined
from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.box.client import Boxes, BoxLost, Verdict
from jobs.engine.rollouts.code_tests import CodeTests, TestsUnreadable, code_of, tests_of
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, ScoringLimits

_OUTPUT_BYTES = 1 << 20


class CodeReward:
    """Scores by the share of cases that pass, or by all of them. Its boxes are closed after a failure of theirs."""

    def __init__(self, limits: ScoringLimits) -> None:
        self._limits = limits
        try:
            self._boxes = Boxes(
                cpu_seconds=limits.code.cpu_seconds,
                memory_bytes=limits.code.memory_mib << 20,
                output_bytes=_OUTPUT_BYTES,
                most=limits.num_workers,
            )
        except (NotConfined, BoxLost, OSError) as error:
            text = f"Code of responses cannot be run in a box on this node: {error}. Without one it is not run at all."
            raise RewardFailed(text, kind="not_started", field="reward.kind") from error

    @property
    def notes(self) -> tuple[str, ...]:
        """What this node's box does not keep from the code."""
        if not self._boxes.lacks:
            return ()
        return (
            "Code of responses runs without network, other processes or writing, but on this node it can read what the "
            f"run's user can read: {self._boxes.lacks}.",
        )

    def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
        """Return the scores. A row whose tests cannot be read is a failure, code that fails is none.

        Raises: RewardFailed of the first such row, unless failures are kept; `unreachable` if the boxes are lost.
        """
        read = [self._tests(each) for each in completions]
        jobs = [
            tests.job(code_of(each.completion))
            for each, tests in zip(completions, read, strict=True)
            if isinstance(tests, CodeTests)
        ]
        try:
            verdicts = iter(self._boxes.run(jobs, check=self._limits.check))
        except BaseException as error:
            self.close()
            if not isinstance(error, (BoxLost, OSError)):
                raise
            text = f"The process that runs the code of responses was lost: {error}."
            raise RewardFailed(text, kind="unreachable", field="reward.kind") from error
        return [each if isinstance(each, RewardFailed) else self._score(next(verdicts), each) for each in read]

    def close(self) -> None:
        """End the boxes."""
        self._boxes.close()

    def _tests(self, completion: Completion) -> CodeTests | RewardFailed:
        try:
            return tests_of(completion.answer)
        except TestsUnreadable as error:
            text = f"The tests of the prompt {completion.prompt[:60]!r} cannot be run. {error}"
            failure = RewardFailed(text, kind="wrong_type", field="data.answer_column")
            if not self._limits.keeps_failures:
                raise failure from error
            return failure

    def _score(self, verdict: Verdict, tests: CodeTests) -> Score:
        share = min(verdict.num_passed, tests.num_cases) / tests.num_cases
        total = share if self._limits.code.gives_share else float(share == 1)
        return Score(
            total=total, parts={"code": total}, is_right=share == 1, is_abandoned=verdict.timed_out and share < 1
        )


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> CodeReward:  # noqa: ARG002
        """Start the boxes' server."""
        return CodeReward(limits)


PLUGIN = Plugin()
