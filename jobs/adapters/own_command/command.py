"""A spec as the start of somebody's own command: no shell, its words as they are; what the form says as variables."""

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path, PurePosixPath

from jobs.adapters.inputs import MODEL, eval_path, model_path, train_path
from jobs.adapters.launching import Launch
from jobs.adapters.own_command.patterns import read_patterns
from jobs.catalog.knob import knob_flags
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import value_text

CARRIED = "inputs/carried"
CLIENT, START = "pitwall.py", "pitwall_start.py"
ORDER = "inputs/command.json"
METRICS = "metrics.jsonl"
SOURCE = "source"
BOARD = "tb"
_ADDRESS = re.compile(r"(https|git)://[^\s@]+|ssh://([\w.-]+@)?[^\s@]+|[\w.-]+@[\w.-]+:[^\s]+|/[^\s]+")
_REF = re.compile(r"[\w][\w./-]{0,199}")


def command(*, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
    """Return how to start it: by a small program that fetches the repository, if one is named, and becomes the command.

    Raises: ValueError with a sentence for a command, folder or address that makes no sense.
    """
    folder, address, ref = (str(spec.knob(f"own_command.{name}") or "") for name in ("working_dir", "git", "git_ref"))
    argv = argv_of(spec)
    if folder and not PurePosixPath(folder).is_absolute():
        raise ValueError(
            Sentence("Working directory is {given}. Give an absolute path on the node.", given=repr(folder))
        )
    if address and not _ADDRESS.fullmatch(address):
        text = "Git repository is no address that is taken. Use https://, ssh:// or git@host:path, without a password."
        raise ValueError(Sentence(text))
    if ref and not _REF.fullmatch(ref):
        raise ValueError(Sentence("{given} is no branch, tag or commit.", given=repr(ref)))
    if folder and address:
        raise ValueError(Sentence("Give a working directory or a Git repository, not both."))
    read_patterns(str(spec.knob("own_command.patterns") or ""))
    carried = {f"{CARRIED}/{name}": _text(name) for name in (CLIENT, START)}
    order = {"argv": argv, "folder": folder, "git": address, "ref": ref, "source": SOURCE}
    return Launch(
        argv=(python, "-m", START.removesuffix(".py"), str(run_dir / ORDER)),
        env={"PYTHONPATH": str(run_dir / CARRIED), "PYTHONUNBUFFERED": "1", **_variables(spec, run_dir, device)},
        files={ORDER: json.dumps(order, indent=1) + "\n", **carried},
        working_dir=Path(folder) if folder else None,
    )


def argv_of(spec: RunSpec) -> list[str]:
    """Return the words of the command. Raises: ValueError with a sentence for none, or a quote that never ends."""
    text = str(spec.knob("own_command.argv") or "")
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ValueError(Sentence("The command has a quote that is never closed.")) from error
    return words


def board_folder(spec: RunSpec, run_dir: Path) -> Path:
    """Return where TensorBoard files are looked for: as the form says, from where the command works."""
    named = str(spec.knob("own_command.tensorboard") or "")
    folder = str(spec.knob("own_command.working_dir") or "")
    home = Path(folder) if folder else run_dir / SOURCE if spec.knob("own_command.git") else run_dir
    return home / named if named else run_dir / BOARD


def _variables(spec: RunSpec, run_dir: Path, device: str) -> dict[str, str]:
    """Return what the form says as variables: places, and each knob under the name of its flag."""
    wanted = spec.hardware.device if spec.hardware.device != "auto" else device
    places = {
        "PITWALL_RUN_DIR": str(run_dir),
        "PITWALL_TENSORBOARD": str(run_dir / BOARD),
        "PITWALL_MODEL": _place(model_path(spec), run_dir),
        "PITWALL_DATA": _place(train_path(spec), run_dir),
        "PITWALL_EVAL_DATA": _place(eval_path(spec), run_dir),
        "PITWALL_ALGORITHM": spec.algorithm,
        "PITWALL_NAME": spec.name,
        "PITWALL_DEVICE": wanted,
    }
    flags = knob_flags(spec.algorithm, spec.trainer.name, spec.trainer.version)
    knobs = {flag.name: value_text(spec.knob(name)) for name, (_, flag) in flags.items() if flag.name.isupper()}
    return {name: text for name, text in {**places, **knobs}.items() if text}


def _place(path: str, run_dir: Path) -> str:
    """Return a path of the run directory in full, and any other place as it is."""
    return str(run_dir / path) if path.startswith(f"{Path(MODEL).parent}/") else path


def _text(name: str) -> str:
    return (files("jobs.adapters.own_command.carried") / name).read_text("utf-8")
