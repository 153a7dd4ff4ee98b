"""Who and what there is on a console that is attacked: the people and things of the access matrix, as rows.

`write` runs in the console's own environment and prints one line; the attacker knows what stands in it, and no more.
"""

import json
from typing import Any

from tests.proofs.security.site import MARK


def write() -> None:
    """Make the scene, in place of an earlier one that attacks have used up, and print it."""
    from django.db import DatabaseError

    for tries_left in reversed(range(TRIES)):
        try:
            _clear()
            break
        except DatabaseError:  # a worker writes of what goes: a run that the attacks have launched
            if not tries_left:
                raise
    print(MARK + json.dumps(made()), flush=True)


def _clear() -> None:
    from django.contrib.auth.models import User

    from jobs.models import Project

    Project.objects.exclude(slug="default").delete()
    User.objects.exclude(username="admin").delete()


def made() -> dict[str, Any]:
    """Return of a new scene: the session cookie and the API token of each caller, and the ids of what is theirs."""
    from django.contrib.auth.models import User

    from console.sign_in.api_token import make_token
    from jobs.models import Upload
    from jobs.runs.launch import ingest_token
    from tests.console.test_access_matrix import CALLERS, TOKENS, Scene
    from tests.rows import make_run, make_user

    scene = Scene()
    for user in (*scene.people.values(), scene.owner):
        user.set_password(PASSWORD)
        user.save()
    Upload.objects.create(project=scene.theirs, sha256=SECRET_SHA, file_name="secret.jsonl", size=7)
    callers = {name: str(scene.bearer(name).defaults.get("HTTP_AUTHORIZATION", "")) for name in (*CALLERS, *TOKENS)}
    sessions = {name: scene.session(name).cookies for name in CALLERS}
    live = make_run(scene.theirs, state="running")
    knobless = scene.study.__class__.objects.create(
        project=scene.theirs, name="no knobs", spec=scene.run.spec, knobs=[], method="grid", num_runs=1
    )
    chief = make_user("chief", project=scene.theirs, role="admin")
    User.objects.filter(pk=chief.pk).update(is_superuser=True)
    callers["superuser"] = f"Bearer {make_token(user=chief, name='t')[1]}"
    callers["a runner"] = f"Bearer {ingest_token(live.pk, 1)}"
    return {
        "values": scene.values | {"live_run": live.pk, "knobless": knobless.pk, "upload": SECRET_SHA},
        "tokens": callers,
        "cookies": {n: c["pitwall_session"].value for n, c in sessions.items() if "pitwall_session" in c},
        "superusers": list(User.objects.filter(is_superuser=True).values_list("username", flat=True)),
    }


TRIES = 5
PASSWORD = "correct horse battery"
SECRET_SHA = "5" * 64
