"""The built-in trainer, `python -m jobs.engine`. It reads the RunSpec itself, so nothing has to be translated."""

from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.adapter import Adapter, Launch, ReadBack, Spelling
from jobs.adapters.recorded import RecordedFile
from jobs.catalog.runspec import RunSpec
from jobs.catalog.sentence import Sentence


class NativeAdapter:
    """Starts jobs.engine on the run directory."""

    def command(self, *, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
        """Return the engine's command; a device that the spec names wins over `device`."""
        wanted = spec.hardware.device if spec.hardware.device != "auto" else device
        argv: tuple[str, ...] = (python, "-m", "jobs.engine", str(run_dir))
        if wanted in ("cpu", "cuda"):
            argv += ("--device", wanted)
        return Launch(
            argv=argv,
            env={
                "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
                "PYTHONFAULTHANDLER": "1",  # a crash in native code leaves the Python stack in the log
            },
        )

    def read_back(self, *, words: Sequence[str], version: str) -> ReadBack:  # noqa: ARG002
        """Refuse: the engine's command names a run directory and nothing else."""
        text = "The built-in trainer is started on a run directory: paste the run's spec instead."
        raise ValueError(Sentence(text))

    def spellings(self, *, version: str) -> Sequence[Spelling]:  # noqa: ARG002
        """Return nothing: the engine reads the spec by its own names."""
        return ()

    def reader(self, *, spec: RunSpec, run_dir: Path) -> None:  # noqa: ARG002
        """Return None: the engine writes events itself."""
        return

    def role_of(self, *, spec: RunSpec, actor: str) -> str:  # noqa: ARG002
        """Return "": the engine records its workers itself."""
        return ""

    def recorded(self, *, run_dir: Path) -> Sequence[RecordedFile]:  # noqa: ARG002
        """Return nothing: the engine announces its files itself."""
        return ()


PLUGIN: Adapter = NativeAdapter()
