"""Accounts, for whoever runs the machine: `manage.py account list`, `manage.py account deactivate NAME`."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from jobs.accounts.identities import connect
from jobs.accounts.members import MemberRefused, set_member
from jobs.accounts.people import PersonRefused, activate, deactivate, find_person, leave_all, people, set_superuser
from jobs.models import Project
from profiling.counted import counted


class Command(BaseCommand):
    """Lists accounts and changes them; what is refused on the page is refused here in the same sentence."""

    help = "List accounts, shut one, open it again, say who runs this console, and who is what in a project."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take a verb and what it is about."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="print every account").add_argument("words", nargs="*", help="parts of the name")
        for verb, text in (
            ("deactivate", "shut it: sessions, tokens, sign-in links and websockets end, runs go on"),
            ("activate", "open it again; tokens and sessions do not come back"),
            ("superuser", "let it run this console"),
            ("no-superuser", "no longer let it run this console"),
            ("leave", "take it out of every project"),
        ):
            verbs.add_parser(verb, help=text).add_argument("username")
        role = verbs.add_parser("role", help="give it a role in a project")
        role.add_argument("username")
        role.add_argument("project", help="slug of the project")
        role.add_argument("role", help="viewer, editor or admin")
        subject = verbs.add_parser("connect", help="let a person of the OpenID Connect provider sign in to it")
        subject.add_argument("username")
        subject.add_argument("subject", help="the claim `sub` of that person")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Do what the verb says and print what came of it."""
        try:
            text = _VERBS[options["verb"]](options)
        except (PersonRefused, MemberRefused) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(text)


def _list(options: dict[str, Any]) -> str:
    rows = [("NAME", "STATE", "LAST SIGN-IN", "TOKENS", "PROJECTS")]
    for user in people(" ".join(options["words"]), now=timezone.now()):
        state = ("superuser" if user.is_superuser else "active") if user.is_active else "inactive"
        seen = user.last_login.strftime("%Y-%m-%d %H:%M") if user.last_login else "never"
        rows.append((user.username, state, seen, str(user.num_tokens), str(user.num_projects)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _deactivate(options: dict[str, Any]) -> str:
    name = options["username"]
    ended = deactivate(username=name, actor=None, now=timezone.now())
    return counted(
        f"{name} is inactive: {ended.tokens} tokens revoked, {ended.sessions} sessions and {ended.links} unused "
        "sign-in links ended. Runs go on."
    )


def _activate(options: dict[str, Any]) -> str:
    activate(username=options["username"], actor=None)
    return f"{options['username']} is active. A sign-in link: manage.py signin-link {options['username']}"


def _superuser(options: dict[str, Any]) -> str:
    is_superuser = options["verb"] == "superuser"
    set_superuser(username=options["username"], is_superuser=is_superuser, actor=None)
    return f"{options['username']} {'runs' if is_superuser else 'no longer runs'} this console."


def _leave(options: dict[str, Any]) -> str:
    left = leave_all(username=options["username"], actor=None)
    return f"{options['username']} left {', '.join(left) or 'no project: it was in none'}."


def _role(options: dict[str, Any]) -> str:
    project = Project.objects.filter(slug=options["project"]).first()
    if project is None:
        slugs = ", ".join(Project.objects.order_by("slug").values_list("slug", flat=True)[:20]) or "none yet"
        raise CommandError(f"There is no project {options['project']!r}. Known: {slugs}.")
    set_member(project=project, username=options["username"], role=options["role"], actor=None)
    return f"{options['username']} is {options['role']} of {project.slug}."


def _connect(options: dict[str, Any]) -> str:
    if not settings.OIDC.issuer:
        raise CommandError("PITWALL_OIDC_ISSUER is not set, so there is no provider whose subject this could be.")
    user = find_person(options["username"])
    connect(user=user, issuer=settings.OIDC.issuer, subject=options["subject"], actor=None)
    return f"Subject {options['subject']!r} of {settings.OIDC.issuer} signs in as {user.username}."


_VERBS = {
    "list": _list,
    "deactivate": _deactivate,
    "activate": _activate,
    "superuser": _superuser,
    "no-superuser": _superuser,
    "leave": _leave,
    "role": _role,
    "connect": _connect,
}
