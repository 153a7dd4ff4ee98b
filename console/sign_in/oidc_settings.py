"""What the console knows of its OpenID Connect provider; read from the environment in console/settings.py."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from jobs.accounts.group_mapping import GroupMapping
from jobs.cluster.loopback import is_loopback


class OidcMisread(ValueError):
    """The PITWALL_OIDC_* variables do not go together; the sentence names the one that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The provider, and what is made of what it says. Without an issuer there is none.

    `name_claim` and `groups_claim` are claims, dotted where they stand in another. `session_hours`: how long a sign-in
    lasts, after which the provider is asked anew, and the groups with it.
    """

    issuer: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    name: str = ""
    scopes: str = "openid profile email"
    groups_claim: str = "groups"
    name_claim: str = "preferred_username"
    groups: GroupMapping = field(default_factory=GroupMapping)
    creates_accounts: bool = True
    session_hours: float = 12.0

    def __post_init__(self) -> None:
        """Raises: OidcMisread."""
        if not self.issuer:
            return
        parts = urlsplit(self.issuer)
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(self.issuer))):
            text = "has to be an https:// address (http:// only on this machine), as the provider writes it."
            raise OidcMisread(f"PITWALL_OIDC_ISSUER is {self.issuer!r}; it {text}")
        if not self.client_id:
            raise OidcMisread("PITWALL_OIDC_ISSUER is set and PITWALL_OIDC_CLIENT_ID is not. Set both.")
        if "openid" not in self.scopes.split():
            raise OidcMisread(f"PITWALL_OIDC_SCOPES is {self.scopes!r}; `openid` has to be among them.")
        if not 0 < self.session_hours <= 24 * 31:
            hours = f"{self.session_hours:g}"
            raise OidcMisread(f"PITWALL_OIDC_SESSION_HOURS is {hours}; it has to be more than 0 and at most 744.")

    @property
    def label(self) -> str:
        """What people call the provider: PITWALL_OIDC_NAME, or its host."""
        return self.name or urlsplit(self.issuer).hostname or ""
