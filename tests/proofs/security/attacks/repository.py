"""L7, L9: what is the same on every machine, read off the repository."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from profiling.redaction import secrets_of
from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.site import Site

COMPOSE = Path(__file__).resolve().parents[4] / "docker-compose.yml"
# Variables as people have them, with values that must not stand in a report.
SECRETS = {
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=x;AccountKey=c2VjcmV0LXNlY3JldC1zZWNyZXQ=",
    "SENTRY_DSN": "https://5f0c1de2a3b44c5d@errors.example/7",
    "SLACK_WEBHOOK_URL": "https://hooks.example/services/T000/B000/XXXXXXXXXXXX",
    "GITHUB_PAT": "github_pat_11ABCDEFG0123456789",
    "DB_PWD": "a-password-of-somebody",
    "BLOB_SAS": "sv=2024-01-01&sig=abcdefabcdefabcdef",
    "NOTE": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
}


@attack("L7", is_local=True)
def secrets_under_other_names(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """In the environment of a process that nsys records."""
    del site, scene
    left = [
        name for name, value in SECRETS.items() if not any(raw.decode() in value for raw in secrets_of({name: value}))
    ]
    return outcome("secrets in a recorded environment", stopped_by="overwritten", got=", ".join(left))


@attack("L9", is_local=True)
def an_image_that_moves(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """A tag whose content is another tomorrow; a service that takes the machine."""
    del site, scene
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    moving = [
        n for n, s in services.items() if "build" not in s and not re.search(r"@sha256:[0-9a-f]{64}$", s["image"])
    ]
    unbounded = [n for n in services if not n.startswith("ray-") and "limits" not in str(services[n].get("deploy"))]
    got = "; ".join(
        f"{what}: {', '.join(names)}" for what, names in (("no digest", moving), ("no limits", unbounded)) if names
    )
    return outcome("moving images, unbounded services", stopped_by="digests and limits", got=got)
