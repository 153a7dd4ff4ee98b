"""The built-in trainer: started on a run directory. It reads the spec, and writes its events and captures itself."""

from jobs.adapters.adapter import Adapter
from jobs.adapters.native.checkpoints import NativeCheckpoints
from jobs.adapters.native.command import command

PLUGIN = Adapter(command=command, checkpoints=NativeCheckpoints())
