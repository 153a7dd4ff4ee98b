"""What a person can put right: a field of the spec and a sentence about it."""


class RunProblem(ValueError):
    """The run cannot go on as specified; `field` is the dotted field of the RunSpec, the message says what to do."""

    def __init__(self, field: str, message: str) -> None:
        self.field, self.message = field, message
        super().__init__(message)
