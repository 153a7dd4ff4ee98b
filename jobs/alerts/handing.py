"""How a message is handed to a receiver, and how that fails."""

from collections.abc import Callable

Handed = Callable[[], None]
"""Called right before the first byte of a message leaves; it raises NotDelivered where it must not."""


class NotDelivered(Exception):
    """The receiver did not take the message; the text is what it answered, or why nobody could ask it.

    `is_final`: trying again would not help. `may_have_arrived`: it was sent, and no answer came. `retry_after`: seconds
    that the receiver asks for.
    """

    def __init__(
        self, text: str, *, is_final: bool = False, may_have_arrived: bool = False, retry_after: float | None = None
    ) -> None:
        self.is_final = is_final
        self.may_have_arrived = may_have_arrived
        self.retry_after = retry_after
        super().__init__(text)
