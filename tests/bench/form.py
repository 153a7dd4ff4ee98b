"""The New run form with a full verl spec, measured: `python -m tests.bench.form`.

The check of a full spec is `parse_spec` of its complete JSON and every rule on it; the form's answer is all that the
console does between a key pressed and what the panel shows, the 150 ms that the page waits for more keys not counted;
loading the catalogue is what a process does once: knobs, rules, recipes. The first process after a change of its files
parses them, the others read what that one kept.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.stage import ROOT, Result, environment, measure, print_table, seconds

COMMAND = "python -m tests.bench.form"
RECIPE = "verl-grpo-qwen3-8b"
LOAD = """
import time
from jobs.catalog.knob import knobs
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import rules
began = time.perf_counter()
knobs(), rules(), recipes()
print(time.perf_counter() - began)
"""


def main() -> None:
    """Measure in a process of its own, whose settings name a database that is thrown away."""
    with environment() as env:
        argv = [sys.executable, "-m", "tests.bench.form", "--inside"]
        done = subprocess.run(argv, cwd=ROOT, env={**env, "PITWALL_DEBUG": "1"}, stdout=subprocess.PIPE, check=True)
    print_table([Result(**{**row, "spread": tuple(row["spread"])}) for row in json.loads(done.stdout)])


def _inside() -> None:
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.test import Client

    from console.forms.new_run.form import minimal, spec_to_form
    from jobs.catalog.recipe import recipe
    from jobs.catalog.rules.rule import findings
    from jobs.catalog.spec.parse import parse_spec
    from jobs.catalog.spec.runspec import to_json
    from jobs.models import Membership, Project

    spec = recipe(RECIPE).spec
    whole = to_json(spec)
    project = Project.objects.create(name="Bench", slug="bench")
    user = get_user_model().objects.create_user("bench")
    Membership.objects.create(project=project, user=user, role="editor")
    client = Client(headers={"Host": "localhost"})
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    form = spec_to_form(spec) | {"base": json.dumps(minimal(spec))}

    def answered() -> None:
        answer = client.post("/runs/new/check", form)
        assert answer.json()["problems"] == [], answer.content[:300]

    def loaded(kept: str) -> float:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = kept
        done = subprocess.run([sys.executable, "-c", LOAD], cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
        return float(done.stdout)

    def first_loaded() -> float:
        for file in Path(folder).rglob("*.tables"):
            file.unlink()
        return loaded(folder)

    measured = {
        f"check of a full spec ({len(spec.knobs)} knobs)": lambda: seconds(lambda: findings(parse_spec(whole))),
        "form answer, full spec of verl": lambda: seconds(answered),
        "catalogue load, the first after a change": first_loaded,
        "catalogue load": lambda: loaded(folder),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        loaded(folder)  # compiles the modules, which is Python's own time
        for what, function in measured.items():
            median, spread = measure(function, times=9)
            milliseconds = tuple(value * 1000 for value in spread)
            row = {"what": what, "median": median * 1000, "spread": milliseconds, "unit": "ms", "command": COMMAND}
            rows.append(row)
    print(json.dumps(rows))


if __name__ == "__main__":
    if "--inside" in sys.argv:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        _inside()
    else:
        main()
