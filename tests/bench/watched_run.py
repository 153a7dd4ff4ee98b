"""A run that takes reports and somebody who may watch it, made straight in the database."""

from importlib import import_module
from typing import Any


def make_watched_run() -> dict[str, str]:
    """Return id and token of a new running run, and a signed-in viewer's cookie; sets Django up."""
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.utils import timezone

    from jobs.models import Attempt, Membership, Project, Run
    from jobs.runs.launch import create_run, ingest_token

    project, is_new = Project.objects.get_or_create(slug="watched", defaults={"name": "Watched"})
    user: Any = get_user_model().objects.get_or_create(username="viewer")[0]
    if is_new:
        Membership.objects.create(project=project, user=user, role="viewer")
    run, _ = create_run(project=project, spec={}, user=user, idempotency_key=None, now=timezone.now())
    Run.objects.filter(pk=run.pk).update(state="running")
    Attempt.objects.filter(run=run).update(state="running")
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    cookie = f"{settings.SESSION_COOKIE_NAME}={session.session_key}"
    return {"run": run.pk, "token": ingest_token(run.pk, 1), "cookie": cookie}
