"""What groups of an OpenID Connect provider may do here: PITWALL_OIDC_GROUPS, read once when the console starts.

    ml-team=default:editor; ml-leads=default:admin; platform=superuser
    {"ml-team": ["default:editor", "vision:viewer"], "platform": "superuser"}

Entries are divided by semicolons or line ends, so that a group may be a name with commas ("CN=ml,OU=teams"). No Django:
the settings read it.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

ROLES = ("viewer", "editor", "admin")
SUPERUSER = "superuser"
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
_ALLOWED = (
    "Write group=project:role or group=superuser, with the role viewer, editor or admin, "
    "divided by semicolons, or a JSON object of the same."
)


class GroupsMisread(ValueError):
    """PITWALL_OIDC_GROUPS does not say what it should; the sentence names the entry."""


@dataclass(frozen=True, slots=True)
class GroupMapping:
    """What each group gives: roles in projects, by slug, or to run the console."""

    gifts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any group gives anything."""
        return bool(self.gifts)

    @property
    def projects(self) -> set[str]:
        """The projects in which some group gives a role."""
        return {what.partition(":")[0] for gifts in self.gifts.values() for what in gifts if what != SUPERUSER}

    def knows(self, groups: Collection[str]) -> bool:
        """Return whether one of the groups gives anything."""
        return any(group in self.gifts for group in groups)

    def roles(self, groups: Collection[str]) -> dict[str, str]:
        """Return the highest role that these groups give in each project, by its slug."""
        roles: dict[str, str] = {}
        for what in self._gifts(groups):
            slug, _, role = what.partition(":")
            if role and ROLES.index(role) >= ROLES.index(roles.get(slug, ROLES[0])):
                roles[slug] = role
        return roles

    def is_superuser(self, groups: Collection[str]) -> bool:
        """Return whether these groups let somebody run the console."""
        return SUPERUSER in self._gifts(groups)

    def _gifts(self, groups: Collection[str]) -> list[str]:
        return [what for group in groups for what in self.gifts.get(group, ())]


def read_groups(text: str) -> GroupMapping:
    """Return the mapping that PITWALL_OIDC_GROUPS declares. Raises: GroupsMisread naming the entry that is wrong."""
    gifts_of: dict[str, list[str]] = {}
    for group, what in _json_entries(text) if text.strip().startswith("{") else _list_entries(text):
        gifts_of.setdefault(group, []).append(_checked(group, what))
    return GroupMapping({group: tuple(gifts) for group, gifts in gifts_of.items()})


def _list_entries(text: str) -> list[tuple[str, str]]:
    entries = [entry.strip() for entry in re.split(r"[;\n]", text)]
    pairs = [entry.rpartition("=") for entry in entries if entry]
    return [(group.strip(), what.strip()) for group, _, what in pairs]


def _json_entries(text: str) -> list[tuple[str, str]]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise GroupsMisread(f"PITWALL_OIDC_GROUPS begins like JSON and is none ({error}). {_ALLOWED}") from error
    return [
        (str(group).strip(), what.strip() if isinstance(what, str) else json.dumps(what))
        for group, gifts in value.items()
        for what in (gifts if isinstance(gifts, list) else [gifts])
    ]


def _checked(group: str, what: str) -> str:
    slug, _, role = what.partition(":")
    if not group or not (what == SUPERUSER or (_SLUG.fullmatch(slug) and role in ROLES)):
        raise GroupsMisread(f"PITWALL_OIDC_GROUPS: {f'{group}={what}'[:200]!r} gives nothing that is known. {_ALLOWED}")
    return what
