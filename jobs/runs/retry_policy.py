"""Whether a failed run starts again by itself: the policy of its spec, held against how its attempts ended.

| cause | `retry_on` cluster | `retry_on` any |
|---|---|---|
| cluster, pitwall: Ray, a node or a process was lost | yes | yes |
| trainer: memory, data, code | no | yes, if the attempt got further than any before it |
| user: a person stopped or canceled it, or must put the spec right | no | no |

An attempt that did not find its checkpoint, or found it damaged (`Attempt.lost_checkpoint`), has trained nothing: it
uses up no retry, and the next one comes soon. There are only so many checkpoints, and the start is always there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.models import Attempt, Run

FIRST_DELAY = timedelta(seconds=5)
LONGEST_DELAY = timedelta(minutes=2)
TOO_LATE = timedelta(days=1)
_LOST = ("cluster", "pitwall")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows a failure: attempt `number` of at most `most`, not before `at`; or `why_not`."""

    number: int
    most: int
    at: datetime | None = None
    why_not: str = ""


def delay(num_before: int) -> timedelta:
    """Return how long a retry waits after the failure: 5 s, doubled by each of the `num_before` retries before it."""
    return min(FIRST_DELAY * 2 ** min(num_before, 10), LONGEST_DELAY)


def decide(run: Run, attempts: Sequence[Attempt], *, now: datetime) -> Decision | None:
    """Return what follows the failure of the latest of all attempts, by number.

    None where there is nothing to decide: it has not failed, or the run's policy asks for no retries.
    """
    policy = run.spec.get("policy", {})
    retries, retry_on = policy.get("retries", 0), policy.get("retry_on", "never")
    if not attempts or not retries or retry_on == "never":
        return None
    latest = attempts[-1]
    if run.state != "failed" or latest.state != "failed" or latest.number != run.latest_attempt:
        return None
    used = _retries_used(attempts)
    decision = Decision(number=latest.number + 1, most=latest.number - used + retries)
    failed_at = latest.ended_at or latest.created_at
    why_not = _why_not(run, attempts, retries - used, retry_on)
    if not why_not and now - failed_at > TOO_LATE:
        why_not = _("Not retried: it failed more than a day ago, when the console was away.")
    if why_not:
        return Decision(number=decision.number, most=decision.most, why_not=why_not)
    wait = FIRST_DELAY if latest.lost_checkpoint else delay(used)
    return Decision(number=decision.number, most=decision.most, at=failed_at + wait)


def most_attempts(run: Run, attempts: Sequence[Attempt]) -> int:
    """Return up to which number attempts may come by themselves, the latest one included."""
    retries = run.spec.get("policy", {}).get("retries", 0)
    return attempts[-1].number - _retries_used(attempts) + retries


def last_started(attempts: Sequence[Attempt]) -> Attempt:
    """Return the attempt that a person last started; retries go on in that person's name."""
    return _since_person(attempts)[0]


def _retries_used(attempts: Sequence[Attempt]) -> int:
    """Return how many retries the latest attempt has behind it since a person last started the run."""
    return sum(a.is_automatic and a.lost_checkpoint is None for a in _since_person(attempts))


def _since_person(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return the attempts from the last one that a person started."""
    return attempts[max((i for i, attempt in enumerate(attempts) if not attempt.is_automatic), default=0) :]


def _why_not(run: Run, attempts: Sequence[Attempt], left: int, retry_on: str) -> str:
    latest = attempts[-1]
    side = latest.cause.get("side", "")
    if run.is_stop_requested:
        return _("Not retried: it was asked to stop.")
    if side == "user":
        return _("Not retried: it would fail again until the cause is fixed.")
    if run.study is not None and run.study.is_stop_requested:
        return _("Not retried: its sweep was stopped.")
    if side in _LOST:
        if side == "pitwall" and latest.submitted_at is None:
            return _("Not retried: it would not be accepted again.")
    elif retry_on == "cluster":
        return _("Not retried: its policy retries when the cluster fails, and here the trainer did.")
    elif not _got_further(attempts):
        text = _("Not retried: the trainer failed at step %(step)s and got no further than before, so it would again.")
        return text % {"step": latest.step}
    if left <= 0:
        used = _retries_used(attempts)
        text = ngettext(
            "Not retried: its %(num)s retry is used up.", "Not retried: all %(num)s retries are used up.", used
        )
        return text % {"num": used}
    return ""


def _got_further(attempts: Sequence[Attempt]) -> bool:
    """Return True if the latest attempt did a step that no attempt before it, since a person last started one, did."""
    latest = attempts[-1]
    began = latest.resume_step if latest.resume_attempt else 0
    # One that lost its checkpoint stands at the step it was to start from, and did none.
    trained = [attempt.step for attempt in _since_person(attempts)[:-1] if attempt.lost_checkpoint is None]
    return latest.step > max([began, *trained])
