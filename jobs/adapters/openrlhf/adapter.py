"""OpenRLHF: its options, its TensorBoard files and printed steps, the roles of its actors."""

from jobs.adapters.adapter import Adapter
from jobs.adapters.openrlhf.captures import OpenRLHFCaptures
from jobs.adapters.openrlhf.checkpoints import OpenRLHFCheckpoints
from jobs.adapters.openrlhf.command import command
from jobs.adapters.openrlhf.logs import OpenRLHFLogs
from jobs.adapters.openrlhf.options import option_names
from jobs.adapters.openrlhf.read_back import read_back

PLUGIN = Adapter(
    command=command,
    read_back=read_back,
    option_names=option_names,
    logs=OpenRLHFLogs,
    captures=OpenRLHFCaptures(),
    checkpoints=OpenRLHFCheckpoints(),
)
