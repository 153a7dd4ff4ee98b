"""What a trainer says of knobs that were changed while it trains: the `knobs` of a note's meta, read strictly."""

from collections.abc import Mapping
from typing import Any

from jobs.catalog.knob import knobs
from jobs.models import Command


def read_change(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `command`, `changes` and `refused` of a note, as the history keeps them; None of a note without them.

    What does not look like a change of known knobs is left out: the spec of the run is made from it.
    """
    about = meta.get("knobs")
    if not isinstance(about, Mapping) or not isinstance(about.get("changes"), list):
        return None
    command, refused = about.get("command"), about.get("refused", "")
    return {
        "command": command if type(command) is int else 0,
        "changes": [
            {"knob": c["knob"], "old": c.get("old"), "new": c["new"]} for c in about["changes"] if _is_change(c)
        ],
        "refused": refused if isinstance(refused, str) else "",
    }


def _is_change(raw: object) -> bool:
    return (
        isinstance(raw, Mapping)
        and raw.get("knob") in knobs()
        and all(isinstance(raw.get(key), (int, float, str, bool)) for key in ("old", "new"))
    )


def who_asked(run_id: str, command: int) -> int | None:
    """Return the primary key of the person whose command it was; None if it is nobody's."""
    commands = Command.objects.filter(pk=command, attempt__run_id=run_id, verb="set")
    return commands.values_list("created_by_id", flat=True).first()
