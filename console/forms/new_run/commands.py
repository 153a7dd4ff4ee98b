"""The form's spec as what launches the same run elsewhere: a command line, curl, JSON, YAML, Python."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.forms.new_run.form import minimal
from jobs.catalog.spec.runspec import RunSpec

_BARE = re.compile(r"[A-Za-z_/][\w./-]*")
_YAML_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommands:
    """One launch, written in several ways. `spec` is the short JSON that all of them carry."""

    cli: str
    curl: str
    spec: str
    yaml: str
    python: str


def commands(spec: RunSpec, *, url: str, project: str) -> LaunchCommands:
    """Return what launches `spec` into `project` at `url`; the token and values of secrets stay in the environment."""
    short = minimal(spec)
    line = shlex.quote(json.dumps(short, ensure_ascii=False))
    secrets = "".join(f" --secret {name}" for name in spec.environment.secrets)
    cli = f"echo {line} | python manage.py launch - --project {shlex.quote(project)}{secrets}"
    address = f"{url.rstrip('/')}/api/runs?project={project}"
    curl = (
        f'curl -X POST {shlex.quote(address)} -H "Authorization: Bearer $PITWALL_API_TOKEN" '
        f'-H "Content-Type: application/json" -d {line}'
    )
    return LaunchCommands(
        cli=cli,
        curl=curl,
        spec=json.dumps(short, indent=2, ensure_ascii=False),
        yaml="\n".join(_yaml(short, 0)),
        python=_python(short, address),
    )


def _yaml(tree: Mapping[str, Any], depth: int) -> list[str]:
    """Return objects and scalars as lines of YAML; what is not plain is quoted as in JSON, which YAML reads."""
    lines = []
    for key, value in tree.items():
        head = f"{'  ' * depth}{_scalar(key)}:"
        if isinstance(value, Mapping) and value:
            lines += [head, *_yaml(value, depth + 1)]
        else:
            lines.append(f"{head} {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    if isinstance(value, float):
        text = repr(value)  # YAML 1.1 reads 1e-05 as text: its numbers have a dot
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)


def _python(short: Mapping[str, Any], address: str) -> str:
    """Return a script of the standard library alone that launches the spec."""
    return f"""import json
import os
import urllib.request

spec = json.loads({json.dumps(short, ensure_ascii=False)!r})
request = urllib.request.Request(
    {address!r},
    data=json.dumps(spec).encode(),
    headers={{
        "Authorization": "Bearer " + os.environ["PITWALL_API_TOKEN"],
        "Content-Type": "application/json",
    }},
)
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["url"])
"""
