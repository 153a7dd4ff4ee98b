"""The sign-in form."""

from django.contrib.auth.forms import AuthenticationForm
from django.utils.translation import gettext_lazy as _


class SigninForm(AuthenticationForm):
    """Name and password, refused with one sentence that does not tell which of the two was wrong."""

    error_messages = {
        "invalid_login": _("Name and password do not belong together. Check both; capitals count."),
        "inactive": _("This account is not active. Ask an admin."),
    }
