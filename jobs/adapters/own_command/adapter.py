"""A command of somebody's own: started as it is written; metrics are read from a file, TensorBoard and its output."""

from collections.abc import Sequence

from jobs.adapters.adapter import Adapter, ReadBack
from jobs.adapters.own_command.command import command
from jobs.adapters.own_command.logs import OwnCommandLogs
from jobs.catalog.sentence import Sentence


def no_reading(*, arguments: Sequence[str], version: str) -> ReadBack:  # noqa: ARG001
    """Refuse: what a command of somebody's own means, only they know."""
    raise ValueError(Sentence("A command of your own is not read: put it into the field Command."))


PLUGIN = Adapter(command=command, read_back=no_reading, logs=OwnCommandLogs)
