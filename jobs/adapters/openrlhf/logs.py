"""What OpenRLHF writes, as events.

Supervised training, DPO and reward models write TensorBoard files and nothing else that can be read. Reinforcement
learning prints every step from the actor that trains, wherever it sits, and before it one response of that step (since
0.10.1). Held-out scores are read off its TensorBoard files, which are on that actor's node; where that is another one,
off the lines that tell them.
"""

import ast
import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.adapters.logs.gathering import Step, Steps
from jobs.adapters.logs.lines import GrowingFile
from jobs.adapters.logs.samples import DumpedResponse, sample_events
from jobs.adapters.logs.step_count import BAR, StepCount
from jobs.adapters.logs.tensorboard import FOLDER, TensorBoardReader
from jobs.catalog.algorithm import is_in
from jobs.catalog.log_line import read_line
from jobs.catalog.spec.placement import group_size
from jobs.catalog.spec.runspec import RunSpec
from profiling.events import Event

TRAINER = "openrlhf"
STDOUT = "log/driver-0.stdout"
_SAMPLE = re.compile(r"\] Sample: (\[.*\])\s*$")
_LINE = re.compile(r"Global step (\d{1,9}): (\{.*\})\s*$")
_EVALUATION = re.compile(r"Evaluation completed in [^{}]{1,40}, global_step (\d{1,9}), eval_metrics: (\{.*\})\s*$")
_EPOCHS = re.compile("Train epoch" + BAR)
_MICRO_BATCHES = re.compile(r"Train step of epoch (?P<epoch>\d{1,9})" + BAR)
_NAMES = {"nan": math.nan, "inf": math.inf, "NaN": math.nan, "Infinity": math.inf}


class OpenRLHFLogs:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        algorithm = spec.algorithm
        self._is_rl = is_in(algorithm, "rl")
        self._planned = StepCount(spec=spec, run_dir=run_dir, count=planned_steps)
        self._lines = GrowingFile(path=run_dir / STDOUT)
        self._printed = Steps(trainer=TRAINER, algorithm=algorithm, has_timers=True)
        self._sample: DumpedResponse | None = None  # of the step that is not told yet
        self._board = TensorBoardReader(
            folder=run_dir / FOLDER,
            trainer=TRAINER,
            algorithm=algorithm,
            times_steps=not self._is_rl,
            is_wanted=(lambda tag: tag.startswith("eval/")) if self._is_rl else (lambda _: True),
        )

    def poll(self, *, now_ns: int) -> Sequence[Event]:
        """Return the events of what was written since the last call."""
        samples: list[Event] = []
        if self._is_rl:
            with contextlib.suppress(OSError):
                for line in self._lines.lines():
                    samples += self._read(line.decode("utf-8", "replace"), now_ns)
        planned = list(self._planned.events())
        return [*planned, *samples, *self._printed.events(), *self._board.poll(now_ns=now_ns)]

    def _read(self, line: str, now_ns: int) -> Iterator[Event]:
        if (step := printed_step(line)) is not None:
            self._printed.add(*step, t=now_ns)
            if self._sample is not None:
                yield from sample_events([self._sample], step=step[0], is_eval=False, t=now_ns)
                self._sample = None
        elif (evaluation := printed_evaluation(line)) is not None:
            if not self._board.has_files:
                self._printed.add(*evaluation, t=now_ns)
        elif (sample := printed_sample(line)) is not None:
            self._sample = sample


def printed_step(line: str) -> Step | None:
    """Return step and values (named as in its TensorBoard files) of a line that OpenRLHF prints, None of any other.

    (PPOTrainer pid=812) INFO 11-20 12:00:00 ppo_trainer.py:551] ✨ Global step 3: {'policy_loss': 0.1, 'kl': nan}
    """
    match = _LINE.search(read_line(line).text) if "Global step" in line else None
    return None if match is None else _printed_numbers(match, "train")


def printed_evaluation(line: str) -> Step | None:
    """Return step and held-out scores (named as in its TensorBoard files) of a line that OpenRLHF prints.

    (PPOTrainer pid=812) INFO 11-20 12:09:00 ppo_trainer.py:594] ✨ Evaluation completed in 0:01:07, global_step 3,
    eval_metrics: {'eval_default_pass1': 0.25}
    """
    match = _EVALUATION.search(read_line(line).text) if "eval_metrics" in line else None
    return None if match is None else _printed_numbers(match, "eval")


def _printed_numbers(match: re.Match[str], group: str) -> Step | None:
    """Return the step and the numbers of a dict that was printed; None if it holds none."""
    try:
        tree = ast.parse(match[2], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    metrics = {}
    if isinstance(tree, ast.Dict):
        for key, value in zip(tree.keys, tree.values, strict=True):
            number = _number(value)
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and number is not None:
                metrics[f"{group}/{key.value}"] = number
    return (int(match[1]), metrics) if metrics else None


def printed_sample(line: str) -> DumpedResponse | None:
    """Return the response of a line that OpenRLHF prints before a step's, None of any other.

    Its text is prompt and response together, without the tokens that part them.

    (PPOTrainer pid=812) INFO 11-20 12:00:00 ppo_trainer.py:224] Sample: ['user\\nWhat is 2 + 2?\\nassistant\\n4', 1.0]
    """
    match = _SAMPLE.search(read_line(line).text) if "Sample: " in line else None
    if match is None:
        return None
    try:
        node = ast.parse(match[1], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(node, ast.List) or len(node.elts) != 2:
        return None
    text, reward = node.elts
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return None
    return DumpedResponse(prompt="", completion=text.value, reward=_number(reward))


def _number(node: ast.expr) -> float | None:
    """Return a literal number: also nan and inf, negative ones, and NumPy's and torch's `np.float64(0.1)`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        with contextlib.suppress(OverflowError):  # an integer of hundreds of digits
            return float(node.value)
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _number(node.operand)
        return None if number is None else -number
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _number(node.args[0])
    return None


def planned_steps(text: str, spec: RunSpec, origin: int = 0) -> int | None:
    """Return how many steps the progress bars in `text` promise; None if they do not say (yet).

    Train epoch:   0%|          | 0/2 [00:00<?, ?it/s]                  epochs
    Train step of epoch 0:   3%|▎         | 1/32 [00:00<00:09, ...]     micro-batches of an epoch

    An attempt that goes on from the step `origin` counts the epochs that are left, from the one that it is in, of which
    it counts the micro-batches that are left (trainer/dpo_trainer.py, fit; utils/distributed_sampler.py).
    """
    if is_in(spec.algorithm, "rl"):
        return None  # whose bars count something else
    epochs, micro_batches = _EPOCHS.search(text), _MICRO_BATCHES.search(text)
    if epochs and micro_batches:
        epoch, left, each = int(micro_batches["epoch"]), int(micro_batches["total"]), _micro_batches_per_step(spec)
        whole_steps = (origin + left // each) // (epoch + 1)  # of an epoch; what is left over goes into the next one's
        of_epoch = (origin - epoch * whole_steps) * each + left
        return (origin * each + left + (int(epochs["total"]) - 1) * of_epoch) // each
    return None


def _micro_batches_per_step(spec: RunSpec) -> int:
    """Return how many micro-batches of a rank make a step, as OpenRLHF's strategy (utils/deepspeed) has it."""
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}
    shared = int(values.get("parallel.tensor_parallel_size") or 1)
    shared *= int(values.get("parallel.sequence_parallel_size") or 1)
    batch = int(values["train.batch_size"] or 1) * shared
    ranks = max(1, group_size(values, "policy"))
    return max(1, batch // int(values["train.micro_batch_size"] or 1) // ranks)
