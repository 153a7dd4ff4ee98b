"""What the driver prints of a run: one plain line per step and per evaluation, for whoever reads its log."""

from collections.abc import Mapping

_OF_A_STEP = {
    "reward/mean": "reward",
    "loss/sft": "loss",
    "loss/distillation": "loss",
    "teacher/gap": "gap",
    "loss/pairs": "loss",
    "loss/labels": "loss",
    "labels/accuracy": "right",
    "labels/margin": "margin",
    "pairs/accuracy": "in order",
    "pairs/margin": "margin",
    "loss/value": "value loss",
    "kl/reference": "kl",
    "policy/entropy": "entropy",
    "policy/grad_norm": "grad norm",
}
_OF_AN_EVALUATION = {
    "eval/accuracy": "accuracy",
    "eval/pairs_accuracy": "in order",
    "eval/labels_accuracy": "right",
    "eval/reward": "reward",
    "eval/loss": "loss",
    "eval/pairs_loss": "loss",
    "eval/labels_loss": "loss",
}


def step_line(metrics: Mapping[str, float], *, step: int, num_steps: int) -> str:
    """Return `step 12/60  reward 0.65  kl 0.012  1.1 s`; metrics the step does not have are left out."""
    return _line(f"step {step}/{num_steps}", metrics, _OF_A_STEP, metrics["time/step_seconds"])


def eval_line(metrics: Mapping[str, float], *, step: int, seconds: float) -> str:
    """Return `held-out at step 20  accuracy 0.5  reward 0.55  1.2 s`."""
    more = {name: _spoken(name) for name in metrics if name not in _OF_AN_EVALUATION}
    return _line(f"held-out at step {step}", metrics, {**_OF_AN_EVALUATION, **more}, seconds)


def _spoken(name: str) -> str:
    """Return `hard accuracy` for `eval/hard/accuracy`, `pass at 4` for `eval/pass_at_4`."""
    return name.removeprefix("eval/").replace("/", " ").replace("_", " ")


def _line(head: str, metrics: Mapping[str, float], words: Mapping[str, str], seconds: float) -> str:
    numbers = [f"{word} {metrics[name]:.3g}" for name, word in words.items() if name in metrics]
    return "  ".join([head, *numbers, f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"])
