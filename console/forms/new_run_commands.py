"""The form's spec as the commands that launch the same run: what the page's bottom bar shows and copies."""

import json
import shlex
from dataclasses import dataclass

from console.forms.new_run import minimal
from jobs.catalog.runspec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """One launch, spelled three ways. `spec` is the short JSON that both commands carry."""

    cli: str
    curl: str
    spec: str


def commands(spec: RunSpec, *, url: str, project: str) -> Commands:
    """Return the commands that launch `spec` into `project` at `url`; the token stays in the environment."""
    short = minimal(spec)
    line = shlex.quote(json.dumps(short, ensure_ascii=False))
    cli = f"echo {line} | python manage.py launch - --project {shlex.quote(project)}"
    target = shlex.quote(f"{url.rstrip('/')}/api/runs?project={project}")
    curl = (
        f'curl -X POST {target} -H "Authorization: Bearer $PITWALL_API_TOKEN" -H "Content-Type: application/json" '
        f"-d {line}"
    )
    return Commands(cli=cli, curl=curl, spec=json.dumps(short, indent=2, ensure_ascii=False))
