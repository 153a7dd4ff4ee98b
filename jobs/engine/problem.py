"""What a person can put right: a field of the spec and a sentence about it; a checkpoint that cannot be read; a disk
that is too small.
"""

import errno


class RunProblem(ValueError):
    """The run cannot go on as specified; `field` is the dotted field of the RunSpec, the message says what to do."""

    def __init__(self, field: str, message: str) -> None:
        self.field, self.message = field, message
        super().__init__(message)


class CheckpointLost(RunProblem):
    """The checkpoint to resume from is gone, cut or damaged where the trainer reads it; an older one may be whole."""

    def __init__(self, message: str) -> None:
        super().__init__("resume", message)


class DiskTooSmall(OSError):
    """What is about to be written has no room on the disk; nothing was written of it."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(errno.ENOSPC, message)


def first_sentence(error: BaseException) -> str:
    """Return the first line of what another library says, as a sentence that more can follow."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    line = line.removeprefix("Got: ")  # the hub client's word for an error below it
    return line if line.endswith((".", "!", "?")) else f"{line}."
