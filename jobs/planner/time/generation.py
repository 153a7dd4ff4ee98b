"""How long a rollout engine takes for a batch, with a long tail and as many sequences at once as its cache holds.

Lengths are log-normal, cut at their cap. Sequences are admitted as memory and max_num_seqs allow, and the latest goes
back into the queue when the cache is full, as vLLM does it. Between two events the batch stays the same, and its step
grows with its live tokens alone, so that time is summed exactly.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constants
from jobs.planner.job import Engine, Lengths, Rollouts
from jobs.planner.result import Interval, JobInvalid, around
from jobs.planner.serving.engine_memory import EngineMemory, engine_memory, validate_engine
from jobs.planner.time.decoding import Decoder, decode_step_seconds, make_decoder, prefill_seconds

__all__ = ["decode_step_seconds", "decode_tokens_per_second", "generation_seconds", "mean_lengths", "prefill_seconds"]

_NORMAL = NormalDist()
_GOLDEN = 0.6180339887498949
_TAIL, _BODY = 32, 128  # the longest sequences stand for themselves; the others are taken in so many groups at least,
_MOST_GROUPS = 256  # and at most; of what is more, waves are alike, and time grows with their number
_WAVE_GROUPS = 12  # groups that run at once, at least


def mean_lengths(lengths: Lengths, constants: Constants) -> tuple[float, float]:
    """Return mean tokens of prompt and response: known, or assumed from the caps.

    Assumed is a share of the cap, and above a cap that is usual for it, of the geometric mean of the two: longer caps
    are set for the tail.
    """
    k = constants.decode
    prompt = lengths.mean_prompt or _assumed(lengths.max_prompt, k.mean_prompt_share, k.mean_prompt_cap)
    response = lengths.mean_response or _assumed(lengths.max_response, k.mean_share, k.mean_share_cap)
    return max(prompt, 1.0), max(response, 1.0)


def _assumed(cap: float, share: float, usual: float) -> float:
    return share * min(cap, math.sqrt(usual * cap))


def decode_tokens_per_second(
    engine: Engine, accelerator: Accelerator, batch: int, prompt: float, output: float, constants: Constants
) -> Interval:
    """Return output tokens per second of an engine that always runs `batch` sequences, with the prefill of new ones."""
    validate_engine(engine)
    _positive("batch", batch)
    step = make_decoder(engine, accelerator, constants).step(batch, prompt + constants.decode.live_share * output)
    step += prefill_seconds(engine, accelerator, batch * prompt / max(output, 1.0), prompt / 2, constants)
    return around(batch / step, _decode_band(engine, constants))


def generation_seconds(
    engine: Engine,
    accelerator: Accelerator,
    rollouts: Rollouts,
    num_engines: int,
    constants: Constants,
    *,
    share: float = 1.0,
    memory: EngineMemory | None = None,
) -> Interval:
    """Return seconds until the last of a batch's responses is there, over `num_engines` that share it evenly. `share`:
    of the speed of an engine that serves alone. `memory`: what the engine holds, where that was estimated before.

    Raises: JobInvalid for what no engine takes, for lengths that are not positive, and where a sequence of the greatest
    length does not fit into the engine's cache.
    """
    _validate(rollouts, num_engines)
    lengths = rollouts.lengths
    memory = memory or engine_memory(engine, accelerator, constants)
    if memory.shortage is not None and memory.shortage.field != "engine.max_model_len":
        raise JobInvalid(memory.shortage.field, memory.shortage.text)
    longest = lengths.max_prompt + lengths.max_response
    if memory.cache.longest_sequence() < longest:
        text = Sentence(
            "rollouts.lengths.max_response {max_response} does not fit: prompt and response make "
            "{longest} tokens, and the cache of an engine holds {longest_sequence}.",
            max_response=lengths.max_response,
            longest=longest,
            longest_sequence=memory.cache.longest_sequence(),
        )
        raise JobInvalid("rollouts.lengths.max_response", text)
    prompt, mean = mean_lengths(lengths, constants)
    total = rollouts.prompts * rollouts.samples_per_prompt
    num, capacity = -(-total // num_engines), _capacity(memory, prompt + mean)
    width = max(min(float(memory.max_num_seqs), capacity / (prompt + mean)) / _WAVE_GROUPS, 1.0)
    estimated = min(num, _TAIL + int(_MOST_GROUPS * width))
    spread = lengths.spread or constants.decode.spread
    shares = rollouts.samples_per_prompt if engine.has_prefix_cache else 1
    run = _Run(
        decoder=make_decoder(engine, accelerator, constants),
        prompt=prompt,
        own_prompt=prompt / shares,
        prefill=prefill_seconds(engine, accelerator, 1.0, prompt / 2, constants),
        capacity=capacity,
        most=memory.max_num_seqs,
    )
    drawn = response_lengths(
        estimated, total=total, mean=mean, cap=lengths.max_response, spread=spread, groups=int(estimated / width)
    )
    seconds = run.seconds(drawn) * num / estimated / share
    factor = constants.decode.band_generation if share >= 1 else constants.decode.band_rollout
    if not lengths.mean_response:
        factor = max(factor, constants.decode.band_lengths)
    return around(seconds, factor)


def response_lengths(
    num: int, *, total: int, mean: float, cap: int, spread: float, groups: int = 0
) -> tuple[tuple[float, float], ...]:
    """Return (how many, length) of the responses of one engine: quantiles of a log-normal whose mean, cut, is `mean`.

    The longest is that of all `total` responses, as the engine that has it is waited for. `groups`, about, are made.
    """
    mean = min(mean, cap)
    quantiles = _quantiles(num, min(max(groups, _BODY), _MOST_GROUPS))
    if spread < 1e-6 or mean >= cap:
        return tuple((count, mean) for count, _ in quantiles)
    center = _center(mean, cap, spread)
    lengths = [(count, min(math.exp(center + spread * z), cap)) for count, z in quantiles]
    last = _NORMAL.inv_cdf(1 - 0.5 / max(total, num))
    lengths[-1] = (1.0, max(min(math.exp(center + spread * last), cap), lengths[-1][1]))
    return tuple((count, max(length, 1.0)) for count, length in lengths)


@lru_cache(maxsize=256)
def _quantiles(num: int, groups: int) -> tuple[tuple[float, float], ...]:
    """Return (how many, standard normal quantile), ascending: of few sequences each, of many the longest each."""
    single = num if num <= _TAIL + groups else _TAIL
    body = num - single
    width = body / groups if body else 0.0
    made = [(width, (i + 0.5) * width / num) for i in range(groups if body else 0)]
    made += [(1.0, (body + i + 0.5) / num) for i in range(single)]
    return tuple((count, _NORMAL.inv_cdf(share)) for count, share in made)


@lru_cache(maxsize=256)
def _center(mean: float, cap: int, spread: float) -> float:
    """Return mu of the log-normal whose mean after the cut at `cap` is `mean`."""
    low, high, edge = math.log(mean) - spread * spread, math.log(cap) + 8 * spread, math.log(cap)
    for _ in range(40):
        mu = (low + high) / 2
        at_cap = 1 - _NORMAL.cdf((edge - mu) / spread)
        cut = math.exp(mu + spread * spread / 2) * _NORMAL.cdf((edge - mu) / spread - spread) + cap * at_cap
        low, high = (mu, high) if cut < mean else (low, mu)
    return (low + high) / 2


@lru_cache(maxsize=256)
def length_deviation(mean: float, cap: int, spread: float) -> float:
    """Return the standard deviation of responses' lengths, a log-normal whose mean after the cut at `cap` is `mean`."""
    if spread < 1e-6 or mean >= cap:
        return 0.0
    center, edge = _center(mean, cap, spread), math.log(cap)
    over = (edge - center) / spread
    square = math.exp(2 * center + 2 * spread * spread) * _NORMAL.cdf(over - 2 * spread) + cap**2 * (
        1 - _NORMAL.cdf(over)
    )
    return math.sqrt(max(square - mean * mean, 0.0))


def longest_of(mean: float, deviation: float, num: int) -> float:
    """Return the mean of the greatest of `num` normal values (Blom's approximation)."""
    return mean + deviation * _NORMAL.inv_cdf((num - 0.375) / (num + 0.25)) if num > 1 else mean


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One engine's way through its queue. `own_prompt`: tokens of cache that a prompt takes, shared ones divided."""

    decoder: Decoder
    prompt: float
    own_prompt: float
    prefill: float
    capacity: float
    most: int

    def seconds(self, drawn: Sequence[tuple[float, float]]) -> float:
        """Return seconds until all are done."""
        order = sorted(range(len(drawn)), key=lambda i: (i * _GOLDEN) % 1.0)  # lengths do not come in order
        queue = deque((drawn[i][0], drawn[i][1], 0.0) for i in order)
        running: list[tuple[float, int]] = []  # (token clock at its end, which)
        held: dict[int, tuple[float, float, float, float]] = {}  # how many, length, made before, clock at admission
        clock = seconds = batch = live = used = 0.0
        number = 0
        may_admit = True
        while queue or held:
            while queue and may_admit:
                count, length, made = queue[0]
                need = count * (self.own_prompt + made)
                if held and (batch + count > self.most or used + need > self.capacity):
                    break
                queue.popleft()
                # A prompt is computed once for all that share it; what was thrown out is computed again.
                seconds += count * (self.own_prompt + made) * self.prefill
                held[number] = (count, length, made, clock)
                heapq.heappush(running, (clock + length - made, number))
                number += 1
                batch, live, used = batch + count, live + count * (self.prompt + made), used + need
            while running[0][1] not in held:
                heapq.heappop(running)
            steps = running[0][0] - clock
            room = (self.capacity - used) / batch if len(held) > 1 else math.inf
            is_full = room < steps
            steps = max(min(steps, room), 0.0)
            seconds += steps * self.decoder.step(batch, live / batch + steps / 2)
            clock, live, used = clock + steps, live + steps * batch, used + steps * batch
            gone = next(reversed(held)) if is_full else heapq.heappop(running)[1]
            count, length, made, since = held.pop(gone)
            made += clock - since
            batch -= count
            live -= count * (self.prompt + made)
            used -= count * (self.own_prompt + made)
            if is_full:
                queue.appendleft((count, length, made))
            may_admit = not is_full  # what was thrown out waits until another has ended
        return seconds


def _capacity(memory: EngineMemory, tokens: float) -> float:
    """Return live tokens that a cache holds of sequences of `tokens`: of a window's layers, the window alone."""
    cache = replace(memory.cache, in_flight=0)
    return cache.num_blocks / cache.sequence_blocks(tokens) * tokens


def _decode_band(engine: Engine, constants: Constants) -> float:
    return constants.decode.band_experts if engine.model.experts else constants.decode.band_dense


def _validate(rollouts: Rollouts, num_engines: int) -> None:
    lengths = rollouts.lengths
    _positive("num_engines", num_engines)
    for name in ("prompts", "samples_per_prompt"):
        _positive(f"rollouts.{name}", getattr(rollouts, name))
    for name in ("max_prompt", "max_response"):
        _positive(f"rollouts.lengths.{name}", getattr(lengths, name))
    for name, most in (
        ("mean_prompt", lengths.max_prompt),
        ("mean_response", lengths.max_response),
        ("spread", 5),
    ):
        value = getattr(lengths, name)
        if not 0 <= value <= most:
            field = f"rollouts.lengths.{name}"
            raise JobInvalid(
                field,
                Sentence(
                    "{value!r} is not allowed for {field}. Use a number from 0 (unknown) to {most}.",
                    value=value,
                    field=field,
                    most=most,
                ),
            )


def _positive(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise JobInvalid(
            field,
            Sentence("{value!r} is not allowed for {field}. Use a whole number from 1.", value=value, field=field),
        )
