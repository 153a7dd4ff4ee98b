"""Fill the store of a case with the code of one revision: `python tests/bench/web/seed.py CODE CASE`; prints JSON.

The product's packages come from CODE, the case and all else of the tests from here.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

HERE = str(Path(__file__).resolve().parents[3])


def main(code: str, name: str) -> None:
    """Make whoever looks, and what there is to see."""
    sys.path[0] = HERE
    load_case = import_module("tests.bench.web.case").load_case
    sys.path[0] = code
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.test import Client

    from jobs.models import Membership, Project

    project, _ = Project.objects.get_or_create(slug="bench", defaults={"name": "Bench"})
    user = get_user_model().objects.get_or_create(username="bench")[0]
    Membership.objects.get_or_create(project=project, user=user, defaults={"role": "editor"})
    seeded = load_case(name).seed(project, user)
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    print(json.dumps({"session": client.cookies["pitwall_session"].value, "seeded": seeded}))


if __name__ == "__main__":
    main(*sys.argv[1:])
