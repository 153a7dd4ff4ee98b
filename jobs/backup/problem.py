"""What a backup or a restore says no with."""


class BackupRefused(ValueError):
    """The backup or the restore cannot be made; the sentence says why, and what to do."""
