"""Which texts every database takes."""


def is_storable(text: str) -> bool:
    """Return True if PostgreSQL and SQLite can keep `text`: no NUL character, no half of a surrogate pair."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
