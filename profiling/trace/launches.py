"""Which calls of a device's interface launch work, told by their names.

Some tools put the number that joins a launch and its work on every call that belongs to it, also on those that only ask
for a property of the device: the launch is the one that is called so.
"""

import re
from collections.abc import Sequence

from profiling.trace.names import numbers_of

_LAUNCH = re.compile(r"launch|memcpy|memset|graph", re.I)


def is_launch(name: str) -> bool:
    """Return True for a call that puts work on a stream: a launch, a copy, a fill, a graph."""
    return _LAUNCH.search(name) is not None


def launch_names(names: Sequence[str]) -> list[int]:
    """Return the numbers of those among some names."""
    return numbers_of(names, _LAUNCH)
