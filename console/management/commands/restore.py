"""`manage.py restore /backups/2026-11-27`: put a backup into this console's data directory and database."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from console.embedded.data_dir import AlreadyRunning, DataDirLock
from jobs.accounts.audit import record
from jobs.backup.problem import BackupRefused
from jobs.backup.restore import check_backup, restore_backup

SECRETS = {
    "same": "The secret key is the one that was here.",
    "restored": "The secret key is back: sessions, links and live runs of then are known again.",
    "differs": "PITWALL_SECRET_KEY is another key than the backup's, and was kept: everybody signs in again, and live "
    "runs of then cannot report. Set it to the text of secret_key in the backup to know them.",
}


class Command(BaseCommand):
    """Restore a backup; exit code 1 with a sentence if that cannot be."""

    help = "Check a backup and put it into this console's data directory and database; stop the console first"
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("folder", type=Path, help="a folder that `manage.py backup` wrote")
        parser.add_argument("--check", action="store_true", help="only check that it is whole and can be read here")
        parser.add_argument("--replace", action="store_true", help="also over data, which is put aside")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Restore, and say what was done and what goes on."""
        folder = options["folder"].resolve()
        try:
            if options["check"]:
                check_backup(folder)
                self.stdout.write(f"{folder} is whole.")
                return
            lock = DataDirLock(Path(settings.DATA_DIR))
            done = restore_backup(folder, now=timezone.now(), replace=options["replace"])
            put_back = {"path": str(folder), "taken_at": done.taken_at}
            record(actor=None, verb="backup.restore", object_type="backup", object_id=folder.name, after=put_back)
            lock.release()
        except (BackupRefused, AlreadyRunning, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Restored to {settings.DATA_DIR} as of {done.taken_at}.")
        if done.migrated:
            self.stdout.write("The backup was of an older release; its database was migrated.")
        self.stdout.write(SECRETS[done.secret])
        for path in done.kept_aside:
            self.stdout.write(f"Put aside: {path}")
        for name in done.missing:
            self.stdout.write(f"Was not in the backup: {name}")
        if done.live:
            runs = ", ".join(sorted({str(attempt["run"]) for attempt in done.live}))
            self.stdout.write(f"Waited or trained then: {runs}. What still trains sends all that came since.")
        if not done.is_queue_emptied:
            self.stdout.write("Redis does not answer now; what it has of before is sorted out by the runners.")
