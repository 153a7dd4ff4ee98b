"""The loggers of OpenRLHF and verl themselves, run out of their wheels: what they write is what is read."""

import ast
import importlib.util
import io
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.conformance.unpacked_wheels import unpacked

OPENRLHF = "openrlhf-0.11.2"
VERL = "verl-0.9.1"


def module_of(wheel: str, path: str) -> ModuleType:
    """Return one file of a wheel as a module, without its package, which imports all of the framework."""
    name = f"loaded_{wheel}_{path}".translate(str.maketrans("-./", "___"))
    spec = importlib.util.spec_from_file_location(name, unpacked(wheel) / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def openrlhf_board(folder: Path, run_name: str = "x") -> Any:
    """Return OpenRLHF's TensorBoard logger of reinforcement learning."""
    args = SimpleNamespace(
        logger=SimpleNamespace(tensorboard_dir=str(folder), wandb=SimpleNamespace(run_name=run_name))
    )
    return module_of(OPENRLHF, "openrlhf/utils/logging_utils.py").TensorboardLogger(args)


def openrlhf_line(step: int, status: Mapping[str, Any], *, trainer: str = "ppo_trainer") -> str:
    """Return what OpenRLHF's trainer prints for a step: its own logger and its own statement, cut out of its file."""
    return _printed("Global step", trainer, global_step=step, log_status=dict(status))


def openrlhf_evaluation(step: int, scores: Mapping[str, Any]) -> str:
    """Return what OpenRLHF's trainer prints of an evaluation, by its own statement."""
    return _printed("eval_metrics", "ppo_trainer", global_step=step, logs=dict(scores), time_str="0:01:07")


def _printed(words: str, trainer: str, **names: Any) -> str:
    """Return what the statement with these words prints."""
    source = (unpacked(OPENRLHF) / "openrlhf" / "trainer" / f"{trainer}.py").read_text()
    (statement,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and words in (ast.get_source_segment(source, node) or "")
    )
    printed = io.StringIO()
    with redirect_stdout(printed):  # the logger takes the stream that is there when its module is executed
        logger = module_of(OPENRLHF, "openrlhf/utils/logging_utils.py").init_logger(
            f"openrlhf.test.{time.monotonic_ns()}"
        )
        body = ast.Module(body=[statement], type_ignores=[])
        exec(compile(body, trainer, "exec"), {"logger": logger, **names})  # the framework's own statement
    return printed.getvalue()


@contextmanager
def verl_file(path: Path, environ: Any) -> Iterator[Any]:
    """Give verl's file logger on `path`; `environ` is pytest's monkeypatch."""
    environ.setenv("VERL_FILE_LOGGER_PATH", str(path))
    with redirect_stdout(io.StringIO()):
        logger = module_of(VERL, "verl/utils/tracking.py").FileLogger("pitwall", "x")
    yield logger
    logger.finish()


def verl_line(step: int, data: Mapping[str, Any]) -> str:
    """Return what verl's console logger prints for a step."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        module_of(VERL, "verl/utils/logger/aggregate_logger.py").LocalLogger().log(data=dict(data), step=step)
    return printed.getvalue()


def through_ray(line: str, *, actor: str) -> str:
    """Return a line as it stands in a driver's log when an actor on another node has printed it: by Ray's own code."""
    from ray._private.worker import print_worker_logs

    data = {
        "ip": "10.0.0.7",
        "pid": 812,
        "job": "01000000",
        "is_err": False,
        "lines": line.splitlines(),
        "actor_name": actor,
        "task_name": actor,
    }
    printed = io.StringIO()
    print_worker_logs(data, printed)
    return printed.getvalue()
