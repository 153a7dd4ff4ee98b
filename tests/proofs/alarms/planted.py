"""Faults planted into the metrics of healthy runs, with strengths and moments drawn anew for each.

Each fault is described by what it does to the numbers, and drawn wide; what is looked for is nowhere used here.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.proofs.alarms.corpus import Points, RecordedRun

Series = dict[str, Points]
MIN_STEPS = 40  # of a run into which something is planted


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: what it needs of a run, what it does to the series from a step on, and the symptoms that name it."""

    text: str
    needs: tuple[str, ...]
    names: tuple[str, ...]
    plant: Callable[[Series, int, random.Random], None]
    algorithms: tuple[str, ...] = ()  # none: all that have what it needs
    trainers: tuple[str, ...] = ()  # none: all
    knobs: Mapping[str, object] = field(default_factory=dict)  # what the run is launched with, besides its own
    least: int = MIN_STEPS  # steps that a run has to have


def planted(runs: Sequence[RecordedRun], *, seed: int, per_fault: int) -> list[RecordedRun]:
    """Return runs with one fault each: of every fault `per_fault`, in healthy runs that are long enough for it."""
    made = []
    for name, fault in FAULTS.items():
        rng = random.Random(f"{seed} {name}")
        hosts = [run for run in runs if _can_host(run, fault)]
        for number in range(per_fault):
            host = rng.choice(hosts)
            series = {metric: list(points) for metric, points in host.series.items()}
            steps = [step for step, _ in series[fault.needs[0]]]
            fault.plant(series, steps[int(rng.uniform(0.15, 0.5) * len(steps))], rng)
            made.append(
                RecordedRun(
                    name=f"{name}-{number} in {host.name}",
                    expected=tuple(f"learning.{each}" if "." not in each else each for each in fault.names),
                    origin=host.origin,
                    spec={**host.spec, "knobs": {**host.spec["knobs"], **fault.knobs}},
                    series=series,
                    planted=name,
                )
            )
    return made


def _can_host(run: RecordedRun, fault: Fault) -> bool:
    trainer = run.spec.get("trainer", {}).get("name", "native")
    is_asked = (not fault.algorithms or run.spec["algorithm"] in fault.algorithms) and (
        not fault.trainers or trainer in fault.trainers
    )
    has = all(len(run.series.get(name, ())) >= (5 if name.startswith("eval/") else fault.least) for name in fault.needs)
    return run.is_healthy and is_asked and has


def _since(points: Points, begin: int, change: Callable[[float, int], float]) -> Points:
    """Return the points, from the step `begin` on as `change` has them of the value and the steps since."""
    return [(step, change(value, step - begin) if step >= begin else value) for step, value in points]


def _level(points: Points, begin: int) -> tuple[float, float]:
    """Return the mean of the ten values before a step, and the deviation from one to the next there."""
    before = [value for step, value in points if step <= begin][-10:] or [points[0][1]]
    steps = [abs(b - a) for a, b in pairwise(before)]
    return sum(before) / len(before), sum(steps) / max(1, len(steps))


def _hold(series: Series, name: str, begin: int, rng: random.Random, *, to: float = 1.0, within: int = 8) -> None:
    """Let a metric go to `to` times the level it had at a step, within some steps, with the noise it had."""
    if name in series:
        level, deviation = _level(series[name], begin)
        deviation = 0.03 * level if name.startswith("eval/") else deviation  # hundreds of prompts, far apart

        def held(_value: float, since: int) -> float:
            share = min(1.0, since / max(1, within))
            return max(0.0, level * (1 + (to - 1) * share) + rng.gauss(0.0, deviation))

        series[name] = _since(series[name], begin, held)


def _rewards(series: Series, begin: int, rng: random.Random, *, to: float, within: int = 8) -> None:
    for name in ("reward/mean", "reward/correct", "eval/accuracy", "eval/reward"):
        _hold(series, name, begin, rng, to=to, within=within)


def _early(series: Series) -> int:
    """Return the last of the first five steps of the reward: a run that stands still stands there."""
    return series["reward/mean"][4][0]


def _flat(series: Series, _begin: int, rng: random.Random) -> None:
    for name in ("reward/mean", "reward/correct", "eval/accuracy", "eval/reward"):
        if name in series:
            first, noise = series[name][0][1], rng.uniform(0.02, 0.04 if name.startswith("eval/") else 0.15)
            series[name] = [(step, first * max(0.0, rng.gauss(1.0, noise))) for step, _ in series[name]]
    series.pop("groups/zero_variance_fraction", None)
    if "policy/entropy" in series:
        first = series["policy/entropy"][0][1]
        series["policy/entropy"] = [(step, first * rng.gauss(1.0, 0.05)) for step, _ in series["policy/entropy"]]


def _flat_for(count: int) -> Callable[[Series, int, random.Random], None]:
    """Return a fault: a policy that stays as it is for `count` steps. Each mean is that of other prompts and samples.

    The noise is what so many samples of a reward of 0 or 1 have, which prompts of unlike difficulty make larger.
    """

    def plant(series: Series, _begin: int, rng: random.Random) -> None:
        right, samples = rng.uniform(0.05, 0.6), rng.choice((32, 64, 128, 256, 512))
        deviation = math.sqrt(right * (1 - right) / samples) * rng.uniform(1.0, 2.0)
        length, entropy = series["response/length_mean"][0][1], rng.uniform(0.05, 1.0)
        series.clear()
        levels = {
            "reward/mean": (right, deviation),
            "response/length_mean": (length, 0.05 * length),
            "policy/entropy": (entropy, 0.05 * entropy),
        }
        for name, (level, noise) in levels.items():
            series[name] = [(step, max(0.0, rng.gauss(level, noise))) for step in range(1, count + 1)]

    return plant


def _loss_flat(name: str, metric: str = "") -> Callable[[Series, int, random.Random], None]:
    """Return a fault: a loss that stays where it began, for 60 to 400 steps, and held-out pairs in order by chance."""

    def plant(series: Series, _begin: int, rng: random.Random) -> None:
        count, first = rng.randint(60, 400), series[name][0][1]
        pairs, deviation = rng.choice((16, 32, 64, 128)), first * rng.uniform(0.003, 0.08)
        series.clear()
        series[name] = [(step, rng.gauss(first, deviation)) for step in range(1, count + 1)]
        if metric:
            series[metric] = [(step, _share(0.5, pairs, rng)) for step in range(1, count + 1)]

    return plant


def _nothing_trained(name: str, share: float) -> Callable[[Series, int, random.Random], None]:
    """Return a fault: no gradient reaches a parameter, and the loss is a share of what it began at."""

    def plant(series: Series, _begin: int, rng: random.Random) -> None:
        noise, first = rng.uniform(0.0, 0.02), share * series[name][0][1]
        series["policy/grad_norm"] = [(step, 0.0) for step, _ in series["policy/grad_norm"]]
        series[name] = [(step, first * rng.gauss(1.0, noise)) for step, _ in series[name]]

    return plant


def _share(probability: float, count: int, rng: random.Random) -> float:
    """Return how many of so many independent trials came out, as a share."""
    return sum(rng.random() < probability for _ in range(count)) / count


def _prompts_cut(series: Series, _begin: int, rng: random.Random) -> None:
    """The lengths of prompts are log-normal, and those above the limit are cut, from the first step on."""
    limit, spread, prompts = rng.uniform(0.7, 1.5), rng.uniform(0.5, 0.9), rng.choice((32, 128, 512))
    share = 0.5 * math.erfc(math.log(limit) / spread / math.sqrt(2))  # of a median of 1
    steps = [step for step, _ in series["reward/mean"]]
    series["prompt/truncated_fraction"] = [(step, _share(share, prompts, rng)) for step in steps]


def _learned_by_heart(series: Series, begin: int, rng: random.Random) -> None:
    """What is right of the training prompts nears 1; of held-out prompts about as many are right as at the start."""
    first = series["eval/accuracy"][0][1]
    most, pace, gain = rng.uniform(0.95, 1.0), rng.uniform(2, 8), rng.uniform(-0.1, 0.05)
    prompts = rng.choice((64, 128, 256))

    def of_training(value: float, since: int) -> float:
        return most + (value - most) * math.exp(-since / pace)

    for name in ("reward/mean", "reward/correct"):
        series[name] = _since(series[name], begin, lambda value, since: min(1.0, of_training(value, since)))
    series["eval/accuracy"] = [
        (step, _share(min(0.95, max(0.02, first + (gain if step > begin else 0.0))), prompts, rng))
        for step, _ in series["eval/accuracy"]
    ]


def _unlikely(name: str) -> Callable[[Series, int, random.Random], None]:
    """Return a fault: responses that lose 15 to 80 nats, less with each step, times a beta of 0.1."""

    def plant(series: Series, begin: int, rng: random.Random) -> None:
        lost, pace = rng.uniform(15, 80), rng.uniform(3, 12)
        series[name] = _since(
            series[name],
            begin,
            lambda value, since: value + 0.1 * (-lost * (1 - math.exp(-since / pace)) + rng.gauss(0, 1)),
        )

    return plant


def _fp8(series: Series, _begin: int, rng: random.Random) -> None:
    """Products of fp8 (e4m3, 3 bits of mantissa) are rounded 16 times as coarsely as those of bfloat16 (7 bits).

    Of many of them, and with a scale for each block, a part of it is left in the probabilities.
    """
    coarser = 16 * rng.uniform(0.2, 0.9)
    name = "sync/mean_probability_diff"
    series[name] = [(step, value * coarser * rng.uniform(0.9, 1.1)) for step, value in series[name]]
    _rewards(series, 1, rng, to=rng.uniform(0.7, 1.1))


def _leaves_teacher(series: Series, begin: int, rng: random.Random) -> None:
    """The gap to the teacher grows by a share with each step, up to some nats, and likely tokens part."""
    pace, most = rng.uniform(1.15, 1.5), rng.uniform(0.2, 4.0)
    for name in ("teacher/gap", "loss/distillation"):
        series[name] = _since(
            series[name],
            begin,
            lambda value, since: min(max(value, 0.02) * pace**since, most) * rng.uniform(0.85, 1.15),
        )
    series["teacher/overlap"] = _since(series["teacher/overlap"], begin, lambda value, since: value * 0.985**since)
    _rewards(series, begin, rng, to=rng.uniform(0.3, 0.8))


def _other_template(series: Series, _begin: int, rng: random.Random) -> None:
    """The teacher reads another template: few of its likely tokens are the student's, and the gap is wide for good."""
    share, wider = rng.uniform(0.1, 0.42), rng.uniform(5, 30)
    gained = rng.uniform(0.0, 0.05)
    last = series["teacher/overlap"][-1][0]
    series["teacher/overlap"] = [
        (step, share + gained * step / last + rng.gauss(0, 0.02)) for step, _ in series["teacher/overlap"]
    ]
    first = series["teacher/gap"][0][1]
    series["teacher/gap"] = [(step, first * wider * rng.uniform(0.9, 1.1)) for step, _ in series["teacher/gap"]]
    _flat(series, 1, rng)


def _no_signal(series: Series, begin: int, rng: random.Random) -> None:
    _rewards(series, min(begin, _early(series) + 8), rng, to=rng.uniform(0.0, 0.9))
    share = rng.uniform(0.86, 1.0)
    name = "groups/zero_variance_fraction"
    series[name] = _since(series[name], begin, lambda _v, _s: min(1.0, max(0.0, rng.gauss(share, 0.03))))


def _entropy(series: Series, begin: int, rng: random.Random) -> None:
    begin = min(begin, _early(series) + 10)
    pace, floor = rng.uniform(0.6, 0.9), rng.uniform(0.001, 0.05) * series["policy/entropy"][0][1]
    _rewards(series, begin, rng, to=rng.uniform(0.6, 1.05))
    series["policy/entropy"] = _since(
        series["policy/entropy"], begin, lambda value, since: max(value * pace**since, floor) * rng.uniform(0.8, 1.2)
    )


def _entropy_up(series: Series, begin: int, rng: random.Random) -> None:
    """Up to 4 to 10 nats: a choice among all tokens of a vocabulary has 10 to 12."""
    pace, most = rng.uniform(1.1, 1.6), rng.uniform(4.0, 10.0)
    _rewards(series, begin, rng, to=rng.uniform(0.0, 0.7))
    series["policy/entropy"] = _since(
        series["policy/entropy"],
        begin,
        lambda value, since: min(max(value, 0.02) * pace ** min(since, 200), most) * rng.uniform(0.9, 1.1),
    )


def _all_the_same(series: Series, begin: int, rng: random.Random) -> None:
    """Every sample earns the same from a step on, as of a reward that fails and returns a constant."""
    same = rng.choice((0.0, 0.0, 0.5 * series["reward/mean"][0][1]))
    for name in ("reward/correct", "eval/accuracy", "eval/reward", "groups/zero_variance_fraction", "reward/max"):
        series.pop(name, None)
    steps = [step for step, _ in series["reward/mean"]]
    series["reward/mean"] = _since(series["reward/mean"], begin, lambda _v, _s: same)
    if "reward/std" in series:
        series["reward/std"] = [(step, value if step < begin else 0.0) for step, value in series["reward/std"]]
    elif rng.random() < 0.5:
        series["reward/std"] = [(step, 0.3 if step < begin else 0.0) for step in steps]


def _cut_more(series: Series, begin: int, rng: random.Random) -> None:
    """Responses grow towards the limit, and ever more of them reach it."""
    last, most = series["reward/mean"][-1][0], rng.uniform(0.3, 1.0)
    prompts = rng.choice((64, 256, 1024))
    steps = [step for step, _ in series["reward/mean"]]
    series["response/truncated_fraction"] = [
        (step, _share(most * max(0, step - begin) / (last - begin), prompts, rng)) for step in steps
    ]
    _longer(series, begin, rng.uniform(1.3, 3.0), rng)


def _kl(series: Series, begin: int, rng: random.Random) -> None:
    pace, most = rng.uniform(1.15, 1.6), rng.uniform(0.7, 20.0)
    _rewards(series, begin, rng, to=rng.uniform(0.2, 0.8))
    series["kl/reference"] = _since(
        series["kl/reference"],
        begin,
        lambda value, since: min(max(value, 0.02) * pace ** min(since, 200), most) * rng.uniform(0.9, 1.1),
    )


def _collapse(series: Series, begin: int, rng: random.Random) -> None:
    _rewards(series, begin + 8, rng, to=rng.uniform(0.0, 0.4), within=rng.randint(1, 10))


def _longer(series: Series, begin: int, times: float, rng: random.Random) -> None:
    _hold(series, "response/length_mean", begin, rng, to=times, within=rng.randint(2, 15))


def _length(series: Series, begin: int, rng: random.Random) -> None:
    _longer(series, begin, rng.uniform(2.5, 8.0), rng)
    _rewards(series, begin, rng, to=rng.uniform(0.1, 0.6))


def _gamed(series: Series, begin: int, rng: random.Random) -> None:
    _longer(series, begin, rng.uniform(0.4, 4.0), rng)
    for name in ("reward/correct", "eval/accuracy"):
        _hold(series, name, begin + 5, rng, to=rng.uniform(0.0, 0.35), within=rng.randint(2, 12))
    _hold(series, "reward/mean", begin + 5, rng, to=rng.uniform(1.8, 6.0), within=rng.randint(2, 12))


def _to(name: str, low: float, high: float) -> Callable[[Series, int, random.Random], None]:
    """Return a fault that sets a metric to a level between two from a step on, a twentieth of it being noise."""

    def plant(series: Series, begin: int, rng: random.Random) -> None:
        level = rng.uniform(low, high)
        steps = [step for step, _ in max(series.values(), key=len)]
        points = series.get(name) or [(step, 0.0) for step in steps]
        series[name] = _since(points, begin, lambda _v, _s: level + rng.gauss(0.0, abs(level) / 20))

    return plant


def _truncated(series: Series, begin: int, rng: random.Random) -> None:
    _to("response/truncated_fraction", 0.15, 0.9)(series, begin, rng)
    _longer(series, begin, rng.uniform(1.2, 2.0), rng)


def _critic_off(series: Series, begin: int, rng: random.Random) -> None:
    _to("value/explained_variance", -3.0, -0.1)(series, begin, rng)
    _rewards(series, begin, rng, to=rng.uniform(0.3, 0.7))


def _nan(name: str) -> Callable[[Series, int, random.Random], None]:
    def plant(series: Series, begin: int, rng: random.Random) -> None:
        odd = rng.choice((math.nan, math.inf))
        series[name] = _since(series[name], begin, lambda _v, _s: odd)

    return plant


def _jumps(series: Series, _begin: int, rng: random.Random) -> None:
    points = series["policy/grad_norm"]
    usual = sorted(value for _, value in points)[int(0.9 * len(points))]
    chosen = set(rng.sample(range(len(points) - 18, len(points)), rng.randint(3, 6)))
    series["policy/grad_norm"] = [
        (step, usual * rng.uniform(12, 200) if i in chosen else value) for i, (step, value) in enumerate(points)
    ]
    _rewards(series, points[-20][0], rng, to=0.7) if "reward/mean" in series else None


def _climbs(name: str, low: float, high: float) -> Callable[[Series, int, random.Random], None]:
    """Return a fault that lets a loss climb to a share of where it began, from a step on."""

    def plant(series: Series, begin: int, rng: random.Random) -> None:
        start, deviation = series[name][0][1], _level(series[name], begin)[1]
        target, within = start * rng.uniform(low, high), rng.randint(1, 12)
        series[name] = _since(
            series[name],
            begin,
            lambda value, since: value + (target - value) * min(1.0, since / within) + rng.gauss(0, deviation),
        )

    return plant


def _overfits(series: Series, _begin: int, rng: random.Random) -> None:
    """The held-out loss turns in the middle and rises by a share of its lowest; that of training goes on falling."""
    points = series["eval/loss"]
    turn = len(points) // 2
    lowest, first = max(0.3 * points[0][1], 1e-3), points[0][1]
    rise = rng.uniform(0.25, 1.5)
    series["eval/loss"] = [
        (
            step,
            (
                first + (lowest - first) * i / turn
                if i <= turn
                else lowest * (1 + rise * (i - turn) / (len(points) - 1 - turn))
            )
            * rng.gauss(1, 0.01),
        )
        for i, (step, _value) in enumerate(points)
    ]


RL = ("reward/mean", "response/length_mean")
GROUPED = ("grpo", "rloo", "gspo")
TEACHER = ("teacher/gap", "teacher/overlap", "loss/distillation")
FAULTS: Mapping[str, Fault] = {
    "reward stays flat": Fault(
        text="the reward of its first steps, with their noise, to the end",
        needs=RL, names=("reward_stays_flat",), plant=_flat, algorithms=("grpo", "ppo", "rloo", "gspo", "reinforce_pp"),
    ),
    "reward stays flat for 300 steps": Fault(
        text="300 means of 32 to 512 samples of a policy that is right in 5 to 60 % from start to end",
        needs=RL, names=("reward_stays_flat",), plant=_flat_for(300), algorithms=GROUPED,
    ),
    "reward stays flat for 500 steps": Fault(
        text="500 means of 32 to 512 samples of a policy that is right in 5 to 60 % from start to end",
        needs=RL, names=("reward_stays_flat",), plant=_flat_for(500), algorithms=GROUPED,
    ),
    "no signal": Fault(
        text="86 to 100 % zero-variance groups at up to 0.9 of an early reward",
        needs=("groups/zero_variance_fraction", *RL), names=("no_signal",), plant=_no_signal,
    ),
    "entropy collapse": Fault(
        text="entropy times 0.6 to 0.9 each step down to 0.1 to 5 % of its start, the reward stands still",
        needs=("policy/entropy", *RL), names=("entropy_collapse",), plant=_entropy,
    ),
    "entropy explosion": Fault(
        text="entropy times 1.1 to 1.6 each step up to 4 to 10 nats, the reward falls to 0 to 70 %",
        needs=("policy/entropy", *RL), names=("entropy_explodes",), plant=_entropy_up,
    ),
    "the same reward for all": Fault(
        text="all samples earn the same from a step on, half of the runs report their deviation",
        needs=RL, names=("no_signal",), plant=_all_the_same, algorithms=GROUPED,
    ),
    "more and more cut": Fault(
        text="0 to 30 to 100 % of the responses are cut at the end", needs=RL, names=("truncated",),
        plant=_cut_more,
    ),
    "KL runs away": Fault(
        text="KL times 1.15 to 1.6 each step up to 0.7 to 20 nats",
        needs=("kl/reference", *RL), names=("kl_runs_away",), plant=_kl,
    ),
    "reward collapses": Fault(
        text="the reward falls to 0 to 40 % within 1 to 10 steps",
        needs=RL, names=("does_not_converge",), plant=_collapse,
    ),
    "length explosion": Fault(
        text="responses 2.5 to 8 times as long for 10 to 60 % of the reward",
        needs=RL, names=("length_runs_away",), plant=_length,
    ),
    "reward is gamed": Fault(
        text="the reward 1.8 to 6 times as high, right answers down to 0 to 35 %",
        needs=("reward/mean", "eval/accuracy"), names=("reward_is_gamed",), plant=_gamed,
    ),
    "truncated": Fault(
        text="15 to 90 % of the responses cut", needs=("response/truncated_fraction", *RL),
        names=("truncated", "cut_while_reward_rises"),
        plant=_truncated,
    ),
    "clip fraction": Fault(
        text="32 to 90 % of the tokens clipped", needs=("policy/clip_fraction",), names=("updates_too_far",),
        plant=_to("policy/clip_fraction", 0.36, 0.9), algorithms=("grpo", "ppo", "dapo", "rloo"),
    ),
    "mismatch": Fault(
        text="mean difference of probabilities 0.012 to 0.2", needs=("sync/mean_probability_diff",),
        names=("mismatch",), plant=_to("sync/mean_probability_diff", 0.013, 0.2),
    ),
    "stale samples": Fault(
        text="effective fraction of samples 0.02 to 0.25", needs=RL, names=("samples_too_old",),
        plant=_to("correction/effective_sample_fraction", 0.02, 0.25),
    ),
    "scoring fails": Fault(
        text="7 to 90 % of the scorings fail", needs=RL, names=("scoring_fails",),
        plant=_to("reward/failed_fraction", 0.07, 0.9),
    ),
    "cache too small": Fault(
        text="2 to 40 sequences put back in each step", needs=RL, names=("memory.cache_small",),
        plant=_to("preemptions", 2.0, 40.0),
    ),
    "critic off": Fault(
        text="explained variance -0.1 to -3, the reward at 30 to 70 %",
        needs=("value/explained_variance", *RL), names=("critic_off",),
        plant=_critic_off,
    ),
    "learning rate 0": Fault(
        text="the learning rate falls to 0", needs=("policy/learning_rate",), names=("learning_rate_zero",),
        plant=lambda series, begin, _rng: series.update(
            {"policy/learning_rate": _since(series["policy/learning_rate"], begin, lambda _v, _s: 0.0)}
        ),
    ),
    "policy loss not a number": Fault(
        text="nan or infinite from a step on", needs=("loss/policy",), names=("not_a_number",),
        plant=_nan("loss/policy"),
    ),
    "gradient not a number": Fault(
        text="nan or infinite from a step on", needs=("policy/grad_norm",), names=("not_a_number",),
        plant=_nan("policy/grad_norm"),
    ),
    "gradient jumps": Fault(
        text="3 to 6 of the last 18 norms 12 to 200 times as large as the 90th percentile",
        needs=("policy/grad_norm",), names=("gradient_jumps",), plant=_jumps, algorithms=("sft", "dpo", "kto", "rm"),
    ),
    "SFT loss rises": Fault(
        text="up to 0.9 to 4 times where it began", needs=("loss/sft",), names=("loss_rises",),
        plant=_climbs("loss/sft", 0.95, 4.0),
    ),
    "loss of pairs rises": Fault(
        text="up to 0.95 to 4 times where it began", needs=("loss/pairs",), names=("loss_rises",),
        plant=_climbs("loss/pairs", 0.95, 4.0),
    ),
    "SFT overfits": Fault(
        text="held-out loss rises by 25 to 150 % after its lowest", needs=("eval/loss",), names=("overfits",),
        plant=_overfits,
    ),
    "chosen become unlikely": Fault(
        text="reward of chosen responses -6 to -50, at a beta of 0.1 to 0.5", needs=("pairs/chosen_reward",),
        names=("chosen_becomes_unlikely",), plant=_to("pairs/chosen_reward", -50.0, -6.0), algorithms=("dpo",),
    ),
    "desirable become unlikely": Fault(
        text="desirable responses lose 15 to 80 nats, at a beta of 0.1", needs=("labels/desirable_reward",),
        names=("desirable_becomes_unlikely",), plant=_unlikely("labels/desirable_reward"), algorithms=("kto",),
        knobs={"pairs.beta": 0.1},
    ),
    "fp8 without correction": Fault(
        text="probabilities 3 to 14 times as far apart as with bfloat16",
        needs=("sync/mean_probability_diff",), names=("fp8_without_correction",), plant=_fp8, trainers=("verl",),
        knobs={"quantization.rollout": "fp8", "algorithm.correction": "off"}, least=10,
    ),
    "gap to the teacher grows": Fault(
        text="times 1.15 to 1.5 with each step up to 0.2 to 4 nats, the reward falls to 30 to 80 %",
        needs=TEACHER, names=("gap_to_teacher_grows",), plant=_leaves_teacher, least=20,
    ),
    "teacher out of reach": Fault(
        text="10 to 47 % of the teacher's likeliest tokens are the student's, the gap 5 to 30 times as wide",
        needs=TEACHER, names=("teacher_out_of_reach",), plant=_other_template, least=20,
    ),
    "prompts cut": Fault(
        text="log-normal lengths of prompts, the limit 0.7 to 1.5 times their median", needs=RL,
        names=("prompts_cut",), plant=_prompts_cut, trainers=("verl",),
    ),
    "right in training only": Fault(
        text="95 to 100 % of the training prompts right, held-out ones as at the start",
        needs=("reward/correct", "eval/accuracy", *RL), names=("right_in_training_only",),
        plant=_learned_by_heart,
    ),
    "nothing learned of pairs": Fault(
        text="a loss of ln 2 for 60 to 400 steps, 16 to 128 pairs a step in order by chance", needs=("loss/pairs",),
        names=("pairs_not_learned",), plant=_loss_flat("loss/pairs", "pairs/accuracy"),
    ),
    "nothing trained of answers": Fault(
        text="a loss and a gradient of 0 from the first step on, as of labels that are all left out",
        needs=("loss/sft", "policy/grad_norm"), names=("not_trained",), plant=_nothing_trained("loss/sft", 0.0),
    ),
    "nothing trained of pairs": Fault(
        text="a gradient of 0 from the first step on, the loss where it began, 0 to 2 % of it being noise",
        needs=("loss/pairs", "policy/grad_norm"), names=("not_trained",), plant=_nothing_trained("loss/pairs", 1.0),
    ),
    "SFT loss stays flat": Fault(
        text="where it began for 60 to 400 steps, 0.3 to 8 % of it being noise", needs=("loss/sft",),
        names=("loss_stays_flat",), plant=_loss_flat("loss/sft"),
    ),
}  # fmt: skip
