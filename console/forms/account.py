"""Forms of the account page: a token's name, what the pages look like."""

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from console.look import DENSITIES, THEMES


class TokenForm(forms.Form):
    """What a new API token is called."""

    name = forms.CharField(
        max_length=120,
        label=_("Name"),
        error_messages={
            "required": _("Give the token a name, so that you know later what uses it."),
            "max_length": _("The name has %(show_value)d characters. Use at most %(limit_value)d."),
        },
    )


class LookForm(forms.Form):
    """Language, theme and row height; kept in cookies of this browser."""

    language = forms.ChoiceField(choices=settings.LANGUAGES)
    theme = forms.ChoiceField(choices=[(theme, theme) for theme in THEMES])
    density = forms.ChoiceField(choices=[(density, density) for density in DENSITIES])
