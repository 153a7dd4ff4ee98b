"""Once a day: what expired goes, so that no table and no folder grows for ever."""

import logging
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db.models import Q

from jobs.accounts import audit
from jobs.models import ApiToken, SigninLink
from jobs.preflight.data_files import sweep_parts
from jobs.preflight.inputs import uploads_dir

log = logging.getLogger(__name__)

EVERY = timedelta(days=1)
TOKENS_AFTER = timedelta(days=90)  # so long people see in their list that a token ended; the audit keeps its name
TRIAL_FOLDERS = "pitwall-trial-*"  # of jobs.preflight.client, in the folder for temporary files


def sweep_expired(*, now: datetime) -> Mapping[str, int]:
    """Delete what expired: sessions at once, links and counts of failed sign-ins a day later, tokens 90 days later,
    audit rows after PITWALL_AUDIT_DAYS; parts of uploads and trial folders of processes that were killed.

    Return how many of each, without those of which there were none.
    """
    day_ago = now - EVERY
    ended = Q(expires_at__lt=now - TOKENS_AFTER) | Q(revoked_at__lt=now - TOKENS_AFTER)
    rows = {
        "sessions": Session.objects.filter(expire_date__lt=now),
        "sign-in links": SigninLink.objects.filter(Q(expires_at__lt=day_ago) | Q(used_at__lt=day_ago)),
        "failed sign-ins": AccessAttempt.objects.filter(attempt_time__lt=day_ago),
        "logs of failed sign-ins": AccessFailureLog.objects.filter(attempt_time__lt=day_ago),
        "logs of sign-ins": AccessLog.objects.filter(attempt_time__lt=day_ago),
        "tokens": ApiToken.objects.filter(ended),
    }
    counts = {name: old.delete()[0] for name, old in rows.items()}
    counts["audit rows"] = audit.sweep(now=now, days=settings.AUDIT_DAYS)
    counts["parts of uploads"] = sweep_parts(uploads_dir(), now=now)
    counts["trial folders"] = _sweep_folders()
    swept = {name: count for name, count in counts.items() if count}
    if swept:
        log.info("swept: %s", ", ".join(f"{count} {name}" for name, count in swept.items()))
    return swept


def _sweep_folders() -> int:
    """Remove folders of trials whose process was killed.

    By the clock of the files: other consoles have theirs in the same place, and a wrong `now` would end their trials.
    """
    num_removed = 0
    before = time.time() - EVERY.total_seconds()
    for folder in Path(tempfile.gettempdir()).glob(TRIAL_FOLDERS):
        with suppress(OSError):
            if folder.stat().st_mtime < before and folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)
                num_removed += 1
    return num_removed
