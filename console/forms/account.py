"""Forms of an account: sign-in, a token's name and limits, what the pages look like."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.utils.translation import gettext_lazy as _

from jobs.models import Membership, Project

THEMES = ("system", "light", "dark")
DENSITIES = ("compact", "comfortable")
THEME_COOKIE = "pitwall_theme"
DENSITY_COOKIE = "pitwall_density"
LIFETIMES = (
    ("7", _("7 days")),
    ("30", _("30 days")),
    ("90", _("90 days")),
    ("365", _("a year")),
    ("", _("until revoked")),
)
_UNKNOWN = {"invalid_choice": _("%(value)s is not one of the choices. Choose one from the list.")}


class TokenForm(forms.Form):
    """What a new API token is called, and how far it reaches: in which of the person's projects, as what, how long."""

    name = forms.CharField(
        max_length=120,
        label=_("Name"),
        error_messages={
            "required": _("Give the token a name, so that you know later what uses it."),
            "max_length": _("The name has %(show_value)d characters. Use at most %(limit_value)d."),
        },
    )
    role = forms.ChoiceField(choices=Membership.Role.choices, required=False, initial="editor", error_messages=_UNKNOWN)
    project = forms.ChoiceField(required=False, error_messages=_UNKNOWN)
    days = forms.ChoiceField(choices=LIFETIMES, required=False, initial="90", error_messages=_UNKNOWN)

    def clean_role(self) -> str:
        """Return the role; left out, nothing is taken away, as in the API."""
        return self.cleaned_data["role"] or Membership.Role.ADMIN.value

    def __init__(self, data: Any = None, *, projects: list[Project]) -> None:
        super().__init__(data)
        choices = [("", _("all of mine")), *((project.slug, project.name) for project in projects)]
        self.fields["project"].choices = choices  # type: ignore[attr-defined]  # a ChoiceField


class LookForm(forms.Form):
    """Language, theme and row height; kept in cookies of this browser."""

    language = forms.ChoiceField(choices=settings.LANGUAGES)
    theme = forms.ChoiceField(choices=[(theme, theme) for theme in THEMES])
    density = forms.ChoiceField(choices=[(density, density) for density in DENSITIES])


class SigninForm(AuthenticationForm):
    """Name and password, refused with one sentence that does not tell which of the two was wrong."""

    error_messages = {
        "invalid_login": _("User name and password do not match. Check both; they are case-sensitive."),
        "inactive": _("This account is not active. Ask an admin."),
    }
