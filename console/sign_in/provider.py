"""Sign in by an OpenID Connect provider: there and back with Authlib, and each way it fails as a sentence.

Authorization code with PKCE, state and nonce. The ID token's signature is checked with the provider's keys, which are
read anew when it names one that is not known, its issuer and audience with the settings.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from authlib.integrations.django_client import DjangoOAuth2App, OAuth, OAuthError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from joserfc.errors import JoseError
from requests import RequestException

from console.sign_in.oidc_settings import OidcSettings
from jobs.accounts.identities import Visitor

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0
"""How long one question to the provider may take."""
FRESH_SECONDS = 3600.0
"""After this its configuration is read anew."""
LEEWAY_SECONDS = 60
"""How far its clock may be from ours."""
UNKNOWN_STATE = "mismatching_state"
"""What Authlib calls an answer to a question that this session did not ask."""
_SIGNATURES = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""By keys of which only the provider has the secret half: no HS256, and never "none"."""

P = ParamSpec("P")
T = TypeVar("T")


class ProviderFailed(Exception):
    """Nobody was signed in; the text is a sentence for the person. `is_away`: the provider did not answer."""

    def __init__(self, message: str, *, is_away: bool = False) -> None:
        self.is_away = is_away
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Who came back from the provider, and the token by which they can be signed out there."""

    visitor: Visitor
    id_token: str


def _in_sentences(function: Callable[P, T]) -> Callable[P, T]:
    """Raise what goes wrong between console and provider as ProviderFailed; the log has what it was."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OAuthError as error:
            log.warning("sign-in by the provider was refused: %r: %r", error.error, error.description)
            raise ProviderFailed(_sentence(error)) from error
        except RequestException as error:
            log.warning("the provider does not answer: %s", error)
            text = _("The provider of sign-ins does not answer. Try again in a minute, or use another way to sign in.")
            raise ProviderFailed(text, is_away=True) from error
        except (JoseError, ValueError, KeyError, TypeError, RuntimeError) as error:
            log.warning("the provider's answer was not accepted: %s: %s", type(error).__name__, error)
            text = _(
                "What the provider answered did not hold: it may be forged, meant for somebody else, or too old. "
                "Nobody was signed in; begin again."
            )
            raise ProviderFailed(text) from error

    return wrapped


class Provider:
    """The provider that the settings name, with what it says of itself as long as that is fresh."""

    def __init__(self, config: OidcSettings) -> None:
        self.config = config
        self.began_at = time.monotonic()
        registry = OAuth()
        self.app: DjangoOAuth2App = registry.register(
            name="oidc",
            client_id=config.client_id,
            client_secret=config.client_secret or None,
            server_metadata_url=config.issuer.rstrip("/") + "/.well-known/openid-configuration",
            client_kwargs={
                "scope": config.scopes,
                "code_challenge_method": "S256",
                "default_timeout": TIMEOUT_SECONDS,
            },
        )

    @_in_sentences
    def begin(self, request: HttpRequest, *, back_to: str) -> str:
        """Return where to send the person; state, nonce and PKCE verifier are kept in the session.

        Raises: ProviderFailed.
        """
        self._load()
        target = self.app.create_authorization_url(back_to)
        self.app.save_authorize_data(request, redirect_uri=back_to, **target)
        return str(target["url"])

    @_in_sentences
    def arrive(self, request: HttpRequest) -> Arrived:
        """Return who came back. Raises: ProviderFailed, whatever does not hold."""
        self._load()
        # Before anything of the address is shown, an error's text among it: anybody could write one.
        if self.app.framework.get_state_data(request.session, request.GET.get("state", "")) is None:
            raise OAuthError(error=UNKNOWN_STATE)
        if request.GET.get("iss", self.config.issuer) != self.config.issuer:  # RFC 9207: mixed up with another one
            raise ValueError("the answer came from another issuer")
        expected = {
            "iss": {"essential": True, "value": self.config.issuer},
            "aud": {"essential": True, "value": self.config.client_id},
        }
        token = self.app.authorize_access_token(request, claims_options=expected, leeway=LEEWAY_SECONDS)
        claims: dict[str, Any] | None = token.get("userinfo")
        if claims is None:
            raise ValueError("no ID token came")
        return Arrived(visitor=self._visitor(self._all_claims(token, claims)), id_token=str(token["id_token"]))

    @_in_sentences
    def sign_out_url(self, *, id_token: str, back_to: str) -> str:
        """Return where the person signs out of the provider, "" if it has no such address. Raises: ProviderFailed."""
        self._load()
        if not self.app.server_metadata.get("end_session_endpoint"):
            return ""
        made = self.app.create_logout_url(
            post_logout_redirect_uri=back_to, id_token_hint=id_token, client_id=self.config.client_id
        )
        return str(made["url"])

    def _load(self) -> None:
        metadata = self.app.load_server_metadata()
        if metadata.get("issuer") != self.config.issuer:
            named = str(metadata.get("issuer"))[:200]
            raise ValueError(f"it calls itself {named!r}, PITWALL_OIDC_ISSUER is {self.config.issuer!r}")
        offers = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        accepted = [name for name in offers if name in _SIGNATURES]
        if not accepted:
            raise ValueError(f"it signs by {offers}, none of which is accepted: {_SIGNATURES}")
        metadata["id_token_signing_alg_values_supported"] = accepted
        ways = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if not self.config.client_secret or "client_secret_basic" not in ways:
            how = "client_secret_post" if self.config.client_secret else "none"
            self.app.client_kwargs["token_endpoint_auth_method"] = how

    def _all_claims(self, token: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ID token's claims, with those of the userinfo endpoint where one that is needed is missing."""
        wanted = (self.config.groups_claim, self.config.name_claim)
        if all(_claim(claims, name) is not None for name in wanted):
            return dict(claims)
        if not self.app.server_metadata.get("userinfo_endpoint") or "access_token" not in token:
            return dict(claims)
        more = self.app.userinfo(token=token)
        if more.get("sub") != claims["sub"]:
            raise ValueError("the userinfo endpoint speaks of somebody else")
        return {**more, **claims}

    def _visitor(self, claims: Mapping[str, Any]) -> Visitor:
        names = (_claim(claims, self.config.name_claim), claims.get("email"), claims["sub"])
        name = next(str(value) for value in names if value)
        groups = _claim(claims, self.config.groups_claim)
        if groups is None and self.config.groups_claim in (claims.get("_claim_names") or {}):
            text = _(
                "The provider did not send your groups, as there are too many. Ask its administrator to send only "
                "those that this console uses."
            )
            raise ProviderFailed(text)
        names_of_groups = [groups] if isinstance(groups, str) else groups or []
        if not isinstance(names_of_groups, list):
            raise ValueError(f"the claim {self.config.groups_claim!r} is no list")
        return Visitor(
            issuer=self.config.issuer,
            subject=str(claims["sub"]),
            name=name,
            groups=frozenset(str(group) for group in names_of_groups),
        )


_lock = threading.Lock()
_held: list[Provider] = []


def provider(config: OidcSettings) -> Provider:
    """Return the provider of the settings, read anew once an hour."""
    with _lock:
        if _held and _held[0].config == config and time.monotonic() - _held[0].began_at < FRESH_SECONDS:
            return _held[0]
        _held[:] = [Provider(config)]
        return _held[0]


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or by a dotted path into another ("realm_access.roles"); None without it."""
    if path in claims:  # names may be URLs, with dots of their own
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _sentence(error: OAuthError) -> str:
    if error.error == UNKNOWN_STATE:
        return _(
            "This sign-in was not begun in this browser, or more than an hour ago. Begin again, at the address that "
            "the console is known by."
        )
    if error.error == "access_denied":
        return _("The provider did not let you in, or you said no.")
    said = str(error.description or error.error)[:200]
    return _("The provider refused the sign-in: %(said)s") % {"said": said}
