"""What must not stand in logs: one-time links. A refused request (a preview's HEAD, say) would write one, unused."""

import logging
import re

_LINK = re.compile(r"(/signin/)[^\s\"'?]+")


class HideLinks(logging.Filter):
    """Shorten sign-in links in every record that passes; lets all of them through."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the token of a link by an ellipsis."""
        record.msg = _hidden(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(_hidden(value) for value in record.args)
        return True


def _hidden(value: object) -> object:
    return _LINK.sub(r"\1…", value) if isinstance(value, str) else value
