"""The form of an alert rule: a field for each parameter of its kind, and what was typed back into a rule's fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.utils.functional import Promise

from jobs.alerts.kinds import RuleKind, RuleParam


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleField:
    """One parameter as the form shows it; `options` are value, label and whether it is chosen."""

    param: RuleParam
    value: str
    options: tuple[tuple[str, Promise, bool], ...]


def rule_fields(kind: RuleKind, params: Mapping[str, Any]) -> list[RuleField]:
    """Return the form's fields with the rule's values, or the defaults."""
    fields = []
    for param in kind.params:
        value = params.get(param.name, param.default)
        chosen = value if isinstance(value, list) else [value]
        text = f"{value:g}" if _is_number(value) else ", ".join(map(str, chosen))
        options = tuple((key, label, key in chosen) for key, label in param.choices.items())
        fields.append(RuleField(param=param, value=text, options=options))
    return fields


def rule_posted(posted: QueryDict, kind: RuleKind) -> dict[str, Any]:
    """Return what was typed, as the fields of a rule; what it says is judged by jobs.alerts.rules."""
    params: dict[str, Any] = {}
    for param in kind.params:
        key = f"p_{param.name}"
        if param.type == "choices":
            params[param.name] = posted.getlist(key)
        elif param.type == "names":
            params[param.name] = _list(posted.get(key, ""))
        else:
            params[param.name] = posted.get(key, "")
    return {
        "name": posted.get("name", ""),
        "severity": posted.get("severity", ""),
        "tags": _list(posted.get("tags", "")),
        "algorithms": _list(posted.get("algorithms", "")),
        "channels": [int(one) for one in posted.getlist("channels") if one.isdecimal() and len(one) < 19],
        "params": params,
    }


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
