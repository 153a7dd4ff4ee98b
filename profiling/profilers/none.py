"""No marks beyond the phases, which are always recorded: a detail mark costs less than a microsecond."""

from profiling.memory_marks import MarkMemory


class NoMarks:
    """Does nothing."""

    name = "none"
    records_details = False

    def problem(self) -> str:
        """It always works."""
        return ""

    def begin(self, phase: str, step: int, name: str) -> None:
        """Nothing."""

    def end(self, token: object) -> MarkMemory | None:  # noqa: ARG002
        """Nothing."""
        return None


PLUGIN = NoMarks()
