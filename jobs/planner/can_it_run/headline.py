"""What *Can it run?* says in words: the practical minimum first, then what else is possible, and what it rests on.

Every layout is said with its step, what sits on the host, host memory, disk, and how near the limit it is.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from jobs.catalog.sentence import Sentence
from jobs.planner.can_it_run.verdict import Answer, DeviceNeed, FitVerdict, PracticalLimit, fewest
from jobs.planner.estimate import Fit
from jobs.planner.figures import seconds_span, size
from jobs.planner.result import TIGHT_FROM, Estimate, lean_of, phase_word


def judged_on_any(verdict: FitVerdict, practical: DeviceNeed | None, *, most: int) -> FitVerdict:
    """Return the answer for any number of devices, of which `most` were tried; `practical` are the fewest whose step is
    within the limit."""
    least = fewest((*verdict.needs, *_usual(verdict.others)))
    if practical is not None:
        is_slow = verdict.recommended is not None and not verdict.limit.is_quick(verdict.recommended)
        roomy = practical if is_slow else verdict.recommended
        is_least = least is None or (least.num_devices or 0) >= (practical.num_devices or 0)
        return replace(
            verdict,
            answer="yes",
            summary=Sentence("It runs from {layout}", layout=_layout(practical, "from")),
            practical=practical,
            possible=None if is_least else least,
            recommended=roomy,
            at=roomy or practical,
        )
    if (least := least or fewest(verdict.others)) is None:
        summary = Sentence("It fits on none of up to {most:,} devices.", most=most)
        return replace(verdict, answer="no", summary=summary, at=verdict.needs[-1])
    return replace(
        verdict,
        answer="possible",
        summary=_with_reservation(least, verdict.limit, takes=None),
        possible=least,
        at=verdict.recommended or least,
    )


def judged_on(verdict: FitVerdict, able: DeviceNeed | None, near: DeviceNeed | None) -> FitVerdict:
    """Return the answer for the number of devices that is asked for: `able` is the layout on it, else `near` the one
    that comes nearest. `verdict` is the answer for any number."""
    devices = verdict.num_devices
    if able is None:
        answer, summary = _no(near, devices or 0)
        if verdict.practical is not None:
            summary = Sentence("{said} It takes {layout}", said=summary, layout=_layout(verdict.practical))
        return replace(verdict, answer=answer, summary=summary, at=near)
    if verdict.limit.allows(able) and able.on_host != "pure":
        summary = Sentence("It runs on {layout}", layout=_layout(able))
        return replace(verdict, answer="yes", summary=summary, at=able)
    summary = _with_reservation(able, verdict.limit, takes=verdict.practical)
    return replace(verdict, answer="possible", summary=summary, at=able)


def with_more(verdict: FitVerdict, *, longest: int, positions: int, quantization: str = "") -> FitVerdict:
    """Return the verdict with what stands under its headline: fewer devices on which it is slow, what is recommended,
    other ways to train, samples longer than the model has positions (0: it does not say), a checkpoint that is
    quantized by a method ("": by none), and the host memory that is assumed."""
    best, lines = verdict.at if verdict.num_devices is not None else verdict.practical, []
    if verdict.num_devices is None and verdict.practical is not None:
        if verdict.possible is not None:
            layout = _layout(verdict.possible, "from")
            offloads = verdict.possible.on_host != "nothing"
            lines.append(
                Sentence("Possible with offload from {layout}", layout=layout)
                if offloads
                else Sentence("Possible from {layout}", layout=layout)
            )
        recommended = verdict.recommended
        if recommended is not None and str(_layout(recommended)) != str(_layout(verdict.practical)):
            lines.append(Sentence("Recommended: {layout}", layout=_layout(recommended)))
    for need in verdict.others:
        if need is not verdict.possible and need is not best and not _is_beaten(need, verdict.possible):
            lines.append(Sentence("Possible in another way: {layout}", layout=_layout(need)))
    if 0 < positions < longest:
        text = (
            "A sample of {longest:,} tokens is longer than the {positions:,} positions of the model's config: it is "
            "trained and served so only with its positions stretched (rope_scaling)."
        )
        lines.append(Sentence(text, longest=longest, positions=positions))
    if quantization and verdict.method.method != "qlora":
        text = (
            "Its checkpoint is quantized ({name}). Planned are weights of 16 bits, to train and to generate with: its "
            "own, widened as they are loaded, or those of a repository that has them."
        )
        lines.append(Sentence(text, name=quantization))
    if assumed := verdict.limit.host_bytes:
        text = (
            "Assumed: nodes with {size} GB of host RAM for each of their devices, of which a practical layout takes no "
            "more than the part of the devices that it uses. With a node's own host RAM the answer keeps to that."
        )
        lines.append(Sentence(text, size=f"{assumed / 1e9:g}"))
    return replace(verdict, more=tuple(lines))


def _is_beaten(need: DeviceNeed, other: DeviceNeed | None) -> bool:
    """Return True if another layout takes no more devices and has a shorter step."""
    if other is None or other.estimate is None or need.estimate is None:
        return False
    is_fewer = (other.num_devices or 0) <= (need.num_devices or 0)
    return is_fewer and other.estimate.time.step.middle <= need.estimate.time.step.middle


def _usual(others: Iterable[DeviceNeed]) -> tuple[DeviceNeed, ...]:
    """Return the ways that learn the same as the usual ones."""
    return tuple(need for need in others if need.on_host != "pure")


def _with_reservation(need: DeviceNeed, limit: PracticalLimit, *, takes: DeviceNeed | None) -> Sentence:
    """Say that it fits and why that is no yes; `takes`: the practical minimum."""
    layout = _layout(need)
    if limit.is_long(need):
        said = Sentence("It fits, but a step takes long: {layout}", layout=layout)
    elif not limit.is_quick(need):
        text = "It fits, but a step takes {times:,.0f} times the device time of what is recommended: {layout}"
        said = Sentence(text, times=limit.times_recommended(need), layout=layout)
    elif not limit.has_host_memory(need):
        said = Sentence("It fits, but takes the host RAM of more devices than it uses: {layout}", layout=layout)
    else:
        said = Sentence("It fits in another way alone: {layout}", layout=layout)
    if takes is not None:
        return Sentence("{said} It takes {layout}", said=said, layout=_layout(takes))
    hours = f"{limit.seconds / 3600:g}"
    return Sentence(
        "{said} No layout that was tried is practical, with a step within {hours} h.", said=said, hours=hours
    )


def _no(near: DeviceNeed | None, devices: int) -> tuple[Answer, Sentence]:
    """Return no, or unknown where the nearest layout is above the limit by less than is known, and why."""
    if near is None or near.job is None or near.estimate is None:
        return "no", Sentence("No layout fits on {devices:,}.", devices=devices)
    estimate = near.estimate
    if estimate.verdict == "tight" and not lacks_more(estimate, near.job.fleet.host_bytes):
        text = "On {devices:,} it comes within the uncertainty of the limit: a probe run tells. {doubt}"
        return "unknown", Sentence(text, devices=devices, doubt=doubt(near))
    there = near.job.fleet.host_bytes
    if estimate.verdict != "no" and there and estimate.host_bytes > there:
        text = "On {devices:,} the best layout needs {needed} of host RAM a node, of {limit}."
        return "no", Sentence(text, devices=devices, needed=size(estimate.host_bytes), limit=size(there))
    if estimate.verdict != "no" and lacks_more(estimate, 0):
        return "no", Sentence(
            "On {devices:,} the KV cache of the best layout's engine cannot hold one full sequence.", devices=devices
        )
    pool = next(p for p in estimate.pools if p.name == estimate.pool)
    return "no", Sentence(
        "On {devices:,} the best layout needs {needed:.1f} of {limit:.1f} GiB during {phase}.",
        devices=devices,
        needed=estimate.binding.memory.total / (1 << 30),
        limit=pool.limit / (1 << 30),
        phase=phase_word(estimate.phase),
    )


def lacks_more(estimate: Fit | Estimate, host_bytes: int) -> bool:
    """Return True if host memory is short, or the engine's cache does not hold one full-length sequence."""
    if host_bytes and estimate.host_bytes > host_bytes:
        return True
    return estimate.rollout is not None and estimate.rollout.full_sequences < 1


def _layout(need: DeviceNeed, where: Literal["on", "from"] = "on") -> Sentence:
    """Say the devices of a layout, its step, and how it is."""
    words = {"n": need.num_devices or 0, "step": _step(need), "how": how(need)}
    if need.num_devices == 1:
        if where == "from":
            return Sentence("1 device on, {step} a step. {how}", **words)
        return Sentence("1 device, {step} a step. {how}", **words)
    if where == "from":
        return Sentence("{n:,} devices on, {step} a step. {how}", **words)
    return Sentence("{n:,} devices, {step} a step. {how}", **words)


def how(need: DeviceNeed) -> Sentence:
    """Say what sits on the host, host memory, disk, and how near the limit a layout is where it is near."""
    label = Sentence(need.label)
    if need.estimate is None:
        return Sentence("{label}.", label=label)
    said = Sentence(
        "{label}. {host} of host RAM a node, {disk} of disk for a checkpoint.",
        label=label,
        host=size(need.estimate.host_bytes),
        disk=size(need.estimate.checkpoint_bytes),
    )
    return Sentence("{said} {doubt}", said=said, doubt=doubt(need)) if need.is_tight else said


def share_of(need: DeviceNeed) -> float | None:
    """Return the most that a layout takes of what there is, of a device or of a node's host memory; None if nothing
    was estimated."""
    if need.estimate is None or need.job is None:
        return None
    return max(need.device_share, _host_share(need))


def doubt(need: DeviceNeed) -> Sentence:
    """Say how near its limit a tight layout is, how far the estimate may be off, and which way that points."""
    estimate = need.estimate
    if estimate is None:
        return Sentence("It is tight.")
    share, of_host = need.binding_share, _host_share(need)
    if of_host > max(share, TIGHT_FROM):
        text = "It is tight: it takes {share:.0f} % of a node's host RAM, so that little else may run there."
        return Sentence(text, share=100 * of_host)
    text = "It is tight: it takes {share:.0f} % of a device's memory, known to ± {band:.0f} %; {leans}."
    return Sentence(text, share=100 * share, band=100 * estimate.band, leans=lean_of(share, estimate.risk))


def _host_share(need: DeviceNeed) -> float:
    there = need.job.fleet.host_bytes if need.job is not None else 0
    return need.estimate.host_bytes / there if there and need.estimate is not None else 0.0


def _step(need: DeviceNeed) -> str:
    return "—" if need.estimate is None else seconds_span(need.estimate.time.step)
