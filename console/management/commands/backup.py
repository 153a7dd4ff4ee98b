"""`manage.py backup /backups/2026-11-27`: database, files and secret key of this console, while it works."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import timezone

from console.labels.numbers import size
from jobs.accounts.audit import record
from jobs.backup.backup import write_backup
from jobs.backup.problem import BackupRefused
from profiling.counted import counted


class Command(BaseCommand):
    """Write a backup; exit code 1 with a sentence if that cannot be."""

    help = "Write a backup of the database, the files and the secret key to a folder, while the console works"
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("folder", type=Path, help="where to; it must not exist yet")
        text = "an earlier backup on the same disk: files that did not change are hard-linked to it"
        parser.add_argument("--link-to", type=Path, metavar="FOLDER", help=text)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Back up, and say what is in it."""
        try:
            done = write_backup(options["folder"].resolve(), now=timezone.now(), link_to=options["link_to"])
        except (BackupRefused, OSError) as error:
            raise CommandError(str(error)) from error
        taken = {"path": str(done.path), "files": done.num_files, "bytes": done.num_bytes}
        try:
            record(actor=None, verb="backup.create", object_type="backup", object_id=done.path.name, after=taken)
        except DatabaseError as error:  # full, or not migrated yet: the backup is whole all the same
            self.stderr.write(f"The audit does not know of this backup: {error}")
        linked = f", {done.num_linked} of them linked" if options["link_to"] else ""
        self.stdout.write(counted(f"{done.path}: {done.num_files} files{linked}, {size(done.num_bytes)}"))
        if done.num_live:
            self.stdout.write(f"{done.num_live} attempts wait or train; after a restore runners send what came since")
        for name in done.missing:
            self.stdout.write(f"Not in it, deleted while it was taken: {name}")
        self.stdout.write("It holds the secret key and every account: keep it as safe as the console itself.")
