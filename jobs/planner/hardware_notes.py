"""What a device cannot do of what a job asks, and what an answer takes for granted of its rows: notes of every answer.

An estimate goes on where a trainer would not: what is planned for hardware that lacks a kernel is still bytes.
"""

from collections.abc import Iterator

from jobs.catalog.sentence import Sentence
from jobs.planner.job import Job
from jobs.planner.serving.image_profile import doubt_of_images

LONG_ROW = 32 * 1024
"""Tokens of a row from which on attention takes so much of a step that its documents' lengths decide it."""


def notes_of(job: Job) -> tuple[str, ...]:
    """Return the sentences that an answer for a job ends with."""
    longest, document = job.policy.sequence, job.policy.document
    is_one = job.rollouts is None and longest > LONG_ROW and document in (0, longest)
    return (*hardware_notes(job), *doubt_of_images(job.engine), *([long_row(longest)] if is_one else []))


def hardware_notes(job: Job) -> tuple[str, ...]:
    """Return what the job's devices do not run."""
    return () if job.fleet.accelerator.is_host else tuple(dict.fromkeys(_lacks(job)))


def long_row(tokens: int) -> Sentence:
    """Say that a long row is taken as one document, or as documents as long as they may be, as nobody said how long."""
    return Sentence(
        "The mean length of documents is not known, and in rows of {tokens:,} tokens attention hangs on it: with"
        " shorter ones a step takes less. Fill in the mean tokens of a sample (mean_prompt), or preview the data.",
        tokens=tokens,
    )


def _lacks(job: Job) -> Iterator[Sentence]:
    """Yield what the devices do not run, each with what to use instead, and what is planned in its place."""
    kind = job.fleet.accelerator
    for training in (job.policy, *([job.critic] if job.critic is not None else [])):
        if training.compute == "fp8" and not kind.has_fp8:
            yield Sentence("{label} multiplies nothing in fp8: this does not run there. Use bf16.", label=kind.label)
        if training.compute == "bf16" and not kind.has_bf16:
            yield Sentence("{label} computes nothing in bf16: this does not run there. Use fp16.", label=kind.label)
        if training.compute == "fp16" and not kind.has_bf16:
            text = "{label} computes nothing in bf16: planned in fp16, whose loss has to be scaled."
            yield Sentence(text, label=kind.label)
        is_missing = training.attention.startswith("flash") and training.attention not in kind.attention
        if kind.vendor == "nvidia" and is_missing:
            name = "FlashAttention 3" if training.attention == "flash3" else "FlashAttention 2"
            if "flash2" in kind.attention:
                yield Sentence("{label} does not run {name}. Use FlashAttention 2.", label=kind.label, name=name)
            else:
                yield Sentence("{label} does not run {name}. Use PyTorch's own (sdpa).", label=kind.label, name=name)
        if kind.vendor == "nvidia" and training.attention == "sdpa" and not kind.attention:
            text = "{label} does not run FlashAttention: planned with PyTorch's own attention."
            yield Sentence(text, label=kind.label)
    if job.engine is not None and job.engine.weight_bytes == 1 and not kind.has_fp8:
        text = "{label} multiplies nothing in fp8: the engine's fp8 weights save memory there and no time."
        yield Sentence(text, label=kind.label)
