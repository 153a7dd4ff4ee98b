"""How bad a line of a log is: by the level that a logger put into it, or because it names an exception.

The patterns are for RE2 as well as for Python; they are held against whole lines, prefixes included, and mind the case:
`0 errors` is no error.
"""

from typing import Literal, get_args

Level = Literal["error", "warning"]
LEVELS: tuple[Level, ...] = get_args(Level)

_GLOG = r"(?:^|[)\]:] ?){letters}\d\d\d\d \d\d:\d\d:\d\d\.\d"
ERROR_PATTERN = (
    r"\b(?:ERROR|CRITICAL|FATAL)\b"
    r"|^(?:.*[)\]:|] ?)?Traceback \(most recent call last\)"
    r"|^(?:.*[)\]:|] ?)?(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt)(?::|$)"
    rf"|{_GLOG.format(letters='[EF]')}"
)
WARNING_PATTERN = rf"\b(?:WARNING|WARN)\b|\b[A-Z]\w*Warning: |{_GLOG.format(letters='W')}"

PATTERNS: dict[Level, str] = {"error": ERROR_PATTERN, "warning": f"{ERROR_PATTERN}|{WARNING_PATTERN}"}
"""Level -> what lines of that level, and worse ones, match."""
