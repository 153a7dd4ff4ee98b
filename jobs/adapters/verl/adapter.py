"""verl: its Hydra overrides, its JSON lines, its profiler."""

from jobs.adapters.adapter import Adapter
from jobs.adapters.verl.captures import VerlCaptures
from jobs.adapters.verl.checkpoints import VerlCheckpoints
from jobs.adapters.verl.command import command
from jobs.adapters.verl.logs import VerlLogs
from jobs.adapters.verl.options import option_names
from jobs.adapters.verl.read_back import read_back

PLUGIN = Adapter(
    command=command,
    read_back=read_back,
    option_names=option_names,
    logs=VerlLogs,
    captures=VerlCaptures(),
    checkpoints=VerlCheckpoints(),
)
