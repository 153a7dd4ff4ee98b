"""What a question of a window raises that would take too long to answer."""


class TooManyEvents(ValueError):
    """The window holds more events than are looked at together; the sentence says how many, and what to do."""
