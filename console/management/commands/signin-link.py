# ruff: noqa: N999 - the file is named as people type the command
"""Print a one-time sign-in link: `manage.py signin-link [username]`."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from console.embedded.data_dir import running_url
from console.embedded.first_admin import ADMIN_NAME, ensure_admin
from console.sign_in.link import LIFETIME, make_link
from console.sign_in.trail import keep_link


class Command(BaseCommand):
    """Prints a link that signs a person in once."""

    help = "Print a link that signs a person in once, without a password. The first one makes the first admin."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the user name."""
        parser.add_argument("username", nargs="?", default=ADMIN_NAME, help="whom it signs in (default: admin)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the link alone on standard output, so that scripts can read it."""
        name = options["username"]
        if name == ADMIN_NAME and not User.objects.exists():
            ensure_admin()  # of a console that nobody has signed in to yet
        user = User.objects.filter(username=name, is_active=True).first()
        if user is None:
            names = ", ".join(User.objects.filter(is_active=True).values_list("username", flat=True)[:10]) or "none yet"
            raise CommandError(f"There is no active user {name!r}. Known: {names}.")
        url = running_url(Path(settings.DATA_DIR)) or settings.PUBLIC_URL  # `up --port` is known to that process alone
        self.stdout.write(make_link(user=user, base_url=url, now=timezone.now()))
        keep_link(user, lifetime=LIFETIME)
        minutes = int(LIFETIME.total_seconds() // 60)
        self.stderr.write(f"Works once, within {minutes} minutes.")
