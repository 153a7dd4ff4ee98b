"""What people think of samples: thumbs up or down and a note, one word a person; all of a run as JSON lines."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import orjson
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from jobs.accounts.audit import record
from jobs.models import Run, Sample, SampleReview
from jobs.telemetry.samples import visible_attempts

MAX_NOTE_CHARS = 2000
Verdict = Literal["up", "down", ""]


def review_sample(
    *, run: Run, sample: Sample, verdict: Verdict, note: str, user: AbstractBaseUser, now: datetime
) -> SampleReview | None:
    """Keep what a person says of a sample in place of what they said before; None where that is nothing any more."""
    note = note.strip()
    with transaction.atomic():
        Sample.objects.select_for_update().get(pk=sample.pk)  # two words of one person come one after the other
        held = SampleReview.objects.filter(sample=sample, author_id=user.pk).first()
        before, after = (held.verdict, held.note) if held else ("", ""), (verdict, note)
        if before == after:
            return held
        review = None
        if after == ("", ""):
            SampleReview.objects.filter(sample=sample, author_id=user.pk).delete()
        else:
            review, _is_new = SampleReview.objects.update_or_create(
                sample=sample, author_id=user.pk, defaults={"verdict": verdict, "note": note, "at": now}
            )
        place = {"step": sample.step, "group": sample.group, "index": sample.index}
        record(
            actor=user,
            verb="sample.review",
            object_type="run",
            object_id=run.pk,
            before=place | {"verdict": before[0], "note": before[1]},
            after=place | {"verdict": verdict, "note": note},
        )
    return review


def review_lines(run: Run) -> Iterator[str]:
    """Yield every review of a run with its sample, newest step first, one JSON object a line."""
    reviews = SampleReview.objects.filter(sample__run=run, sample__attempt__in=visible_attempts(run.pk))
    place = (f"sample__{name}" for name in ("is_eval", "group", "index"))
    ordered = reviews.order_by("-sample__attempt", "-sample__step", *place, "at")
    for review in ordered.select_related("sample", "author").iterator():
        sample = review.sample
        line = {
            "run": run.pk,
            "attempt": sample.attempt,
            "step": sample.step,
            "is_eval": sample.is_eval,
            "group": sample.group,
            "index": sample.index,
            "prompt": sample.prompt,
            "completion": sample.completion,
            "expected": sample.expected,
            "reward": sample.reward,
            "rewards": sample.rewards,
            "tokens": sample.tokens,
            "verdict": review.verdict,
            "note": review.note,
            "author": review.author.get_username() if review.author else "",
            "at": review.at.isoformat(),
        }
        yield orjson.dumps(line).decode() + "\n"
