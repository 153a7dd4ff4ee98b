"""`manage.py messages`: gather the texts of pages, catalog and rules into console/locale. Needs gettext's programs."""

import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.core.management.commands import makemessages

from console import translations
from console.labels.catalog import module_text

_IGNORED = ("tests", "test-results", "node_modules", "static/vendor/*")


class _Extraction(makemessages.Command):
    """Django's, without guesses, and sorted by text: code that moves does not touch the file."""

    msgmerge_options = [*makemessages.Command.msgmerge_options, "--sort-output", "--no-fuzzy-matching"]


class Command(BaseCommand):
    """Gather and compile; name what has no translation."""

    help = "Gather the texts of pages, catalog and rules into console/locale (needs gettext)"
    requires_system_checks = []  # they load every page and operation, which takes as long as gathering

    def handle(self, *_arguments: Any, **_options: Any) -> None:
        """Write the texts that gettext cannot see into build/, let Django gather all, and compile."""
        texts = Path(settings.BASE_DIR) / "build" / "messages" / "catalog_texts.py"
        texts.parent.mkdir(parents=True, exist_ok=True)
        texts.write_text(module_text(), encoding="utf-8")
        for domain in ("django", "djangojs"):
            call_command(
                _Extraction(),
                locale=["zh_Hans"],
                domain=domain,
                no_obsolete=True,
                no_wrap=True,
                no_location=True,
                ignore_patterns=[*_IGNORED],
                verbosity=0,
            )
        for catalog in sorted(translations.LOCALE.glob("*/LC_MESSAGES/*.po")):
            text = re.sub(r'^"POT-Creation-Date: .*\n', "", catalog.read_text(encoding="utf-8"), flags=re.MULTILINE)
            catalog.write_text(text, encoding="utf-8")
            missing = [source for source, translation in translations.messages(catalog).items() if not translation]
            self.stdout.write(f"{catalog.name}: {len(missing)} without a translation")
            for source in missing:
                self.stdout.write(f"  {source}")
        translations.compile_catalogs()
