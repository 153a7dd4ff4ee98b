"""The demo run: GRPO on the bundled tiny model and word problems, with every knob at its default."""

from collections.abc import Mapping
from typing import Any

DEMO_NAME = "Demo: GRPO on word problems"


def demo_spec(knobs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the demo's raw spec with these knobs changed."""
    return {"name": DEMO_NAME, "algorithm": "grpo", "knobs": dict(knobs or {})}
