"""Services to which a trainer itself sends its metrics, beside what Pitwall reads."""

from jobs.catalog.spec.runspec import RunSpec

SERVICES = "logging.services"
PROJECT = "logging.project"
_WANDB = "wandb.enable"
"""The switch of a trainer that has W&B alone, with knobs of its own."""


def services_of(spec: RunSpec) -> list[str]:
    """Return the names of the services as the spec has them, each once."""
    values = spec.values()
    text = "wandb" if values.get(_WANDB) else str(values.get(SERVICES) or "")
    return list(dict.fromkeys(part for part in map(str.strip, text.split(",")) if part))
