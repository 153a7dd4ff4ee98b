"""TRL: options of its scripts, its TensorBoard files, processes of one node."""

from jobs.adapters.adapter import Adapter
from jobs.adapters.trl.captures import TrlCaptures
from jobs.adapters.trl.checkpoints import TrlCheckpoints
from jobs.adapters.trl.command import command
from jobs.adapters.trl.logs import TrlLogs
from jobs.adapters.trl.options import option_names
from jobs.adapters.trl.read_back import read_back

PLUGIN = Adapter(
    command=command,
    read_back=read_back,
    option_names=option_names,
    logs=TrlLogs,
    captures=TrlCaptures(),
    checkpoints=TrlCheckpoints(),
)
