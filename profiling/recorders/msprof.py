"""Ascend's profiler through torch_npu: operators, kernels and marks of MSTX, as a folder in a zip.

Not run on Ascend: written after the documented calls, and tested with a stand-in.
"""

import importlib
import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiling.config import What
from profiling.recorders.recorder import InMemory, RecorderFailed, ToolRank


class MsprofRecorder:
    """One folder of this process, zipped."""

    marks = "mstx"

    def __init__(self) -> None:
        self._path = Path()
        self._folder: Path | None = None  # there is none before it starts, and a Path() would be the working directory
        self._profile: Any = None

    def sees_other_threads(self) -> bool:
        """The device's own tracing covers the whole process."""
        return True

    def start(self, path: Path) -> None:
        """Start it. `msprof_tx` keeps the marks: without it they are absent."""
        profiler = importlib.import_module("torch_npu").profiler
        self._path = path
        self._folder = Path(tempfile.mkdtemp(prefix="pitwall-msprof-"))
        self._profile = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
            on_trace_ready=profiler.tensorboard_trace_handler(str(self._folder)),
            experimental_config=profiler._ExperimentalConfig(msprof_tx=True),
        )
        self._profile.start()

    def begin_step(self, step: int) -> None:
        """Steps are ranges of MSTX."""

    def end_step(self) -> None:
        """As above."""

    def stop(self) -> None:
        """Stop it; the handler writes the folder."""
        self._profile.stop()
        self._profile = None

    def write(self) -> None:
        """Zip the folder. Raises: RecorderFailed."""
        folder = self._folder
        assert folder is not None, "it was started"
        try:
            if not any(folder.rglob("*")):
                raise RecorderFailed("Ascend's profiler wrote nothing.")
            part = self._path.with_name(f".part-{self._path.name}")
            made = shutil.make_archive(str(part).removesuffix(".zip"), "zip", root_dir=folder)
            Path(made).replace(self._path)
        except OSError as error:
            raise RecorderFailed(f"The folder of Ascend's profiler was not kept: {error}") from error
        finally:
            self._remove()

    def discard(self) -> None:
        """Stop it and drop what it wrote."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None
        self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class MsprofTool(InMemory):
    """The tool `msprof`."""

    name = "msprof"
    about = "operators, kernels, collectives and phases by Ascend's own profiler"
    suffix = ".msprof.zip"
    must_tell = False
    shows: Mapping[What, ToolRank] = {
        "kernels": ToolRank(on=("npu",), order=1, because="sees each task of the device with what launched it"),
        "operators": ToolRank(
            on=("npu",), order=1, because="names operators together with what they run on the device"
        ),
        "communication": ToolRank(on=("npu",), order=1, because="sees each collective of HCCL"),
        "timing": ToolRank(on=("npu",), order=1, because="keeps the phases as marks of MSTX"),
    }

    def problem(self) -> str:
        """It takes Ascend's extension of torch."""
        if importlib.util.find_spec("torch_npu") is None:
            return "Ascend's profiler comes with torch_npu, which is not installed on this node."
        return ""

    def version(self) -> str:
        """Return the version of torch_npu."""
        return f"torch_npu {importlib.import_module('torch_npu').__version__}"

    def recorder(self, what: str) -> MsprofRecorder:  # noqa: ARG002
        """Return a recorder for one capture."""
        return MsprofRecorder()


PLUGIN = MsprofTool()
