"""The exact command, files and environment that a run's trainer is started with, as people read and copy them.

What `jobs.runner` starts comes from the same function of the same arguments, so it is the same byte for byte; only what
looks like a secret is hidden, and the interpreter of the runner itself is not known here where no environment is
declared for the trainer.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from jobs.adapters.adapter import adapter
from jobs.adapters.launching import Launch
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.catalog.trainer_environment import environment_of, how_to_make, read_environments
from jobs.models import Artifact, Attempt
from profiling.redaction import hide

RUN_TO_BE = "r-new"
"""Stands where the run's id will stand before there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCommand:
    """What will run. `problem` says why there is no command.

    `shell` is a whole script, `shown` the same for reading: the files, which are written first, stand at the end. Both
    begin with what is not known of it here.
    """

    argv: tuple[str, ...]
    shell: str
    shown: str
    problem: str = ""


def command_to_be(spec: RunSpec, *, device: str) -> TrainerCommand:
    """Return what a launch of the spec would start; `device` is the cluster's, cpu or cuda."""
    return _command(spec, Path(settings.RUN_ROOT) / RUN_TO_BE / "a1", device)


def command_of(spec: RunSpec, attempt: Attempt) -> TrainerCommand:
    """Return what the attempt started, or will start; of one that goes on, with the checkpoint that it goes on from."""
    device = "cuda" if attempt.num_gpus else "cpu"
    of_run = Path(settings.RUN_ROOT) / attempt.run_id
    saved = {"run": attempt.run_id, "attempt": attempt.resume_attempt, "step": attempt.resume_step}
    path = Artifact.objects.filter(type="checkpoint", **saved).values_list("path", flat=True).first()
    folder = of_run / f"a{attempt.resume_attempt}" / path if path else None
    return _command(spec, of_run / f"a{attempt.number}", device, resumed_from=folder)


def as_shell(launch: Launch, run_dir: Path, *, files_first: bool = True) -> str:
    """Return a launch as a shell script that does the same: folder, files, environment, one option a line.

    With `files_first` false the files stand at the end, which reads better and does not run.
    """
    head = [f"cd {shlex.quote(str(run_dir))}"]
    files = [line for name, text in launch.files.items() for line in _file(name, text)]
    files += [line for name, source in launch.copies.items() for line in _links(name, source)]
    start = [f"export {name}={shlex.quote(value)}" for name, value in launch.env.items()]
    start.append(" \\\n  ".join(option_lines(launch.argv)))
    if files_first or not files:
        return "\n".join([*head, *files, *start])
    return "\n".join([*head, *start, "", "# " + _("Files that are written before:"), *files])


def option_lines(argv: Sequence[str]) -> list[str]:
    """Return an argument vector as shell words, what starts the trainer first and then every option with its values."""
    lines: list[list[str]] = [[]]
    is_program = False
    for place, word in enumerate(argv):
        is_launchers = place > 0 and argv[place - 1] in ("-m", "--module")
        starts_option = word.startswith("-") or (is_program and "=" in word)
        if starts_option and is_program:
            lines.append([])
        lines[-1].append(shlex.quote(word))
        is_program = is_program or is_launchers
    return [" ".join(line) for line in lines]


def _command(spec: RunSpec, run_dir: Path, device: str, *, resumed_from: Path | None = None) -> TrainerCommand:
    environment = environment_of(spec.trainer.name, spec.trainer.version, read_environments(settings.TRAINERS))
    python = environment.at if environment is not None and environment.kind == "python" else "python"
    note = ""
    if python == "python":
        note = _("python is the interpreter of the runner on the cluster.")
        if environment is None and trainers()[spec.trainer.name].package:
            what = f"{spec.trainer.name} {spec.trainer.version}"
            how = how_to_make(spec.trainer.name, spec.trainer.version)
            note = _("No environment is declared for %(what)s: %(how)s.") % {"what": what, "how": how}
    try:
        launch = adapter(spec.trainer.name).command(spec=spec, run_dir=run_dir, python=python, device=device)
    except ValueError as error:
        return TrainerCommand(argv=(), shell="", shown="", problem=in_words(sentence_of(error), _))
    if resumed_from is not None:
        checkpoints = adapter(spec.trainer.name).checkpoints
        launch = checkpoints.resumed(launch=launch, spec=spec, folder=resumed_from)
    head = f"# {note}\n" if note else ""
    shell, shown = (head + as_shell(launch, run_dir, files_first=first) for first in (True, False))
    # A key in an option or a password in an address is for the trainer, not for every reader of the page.
    return TrainerCommand(argv=tuple(map(hide, launch.argv)), shell=hide(shell), shown=hide(shown))


def _folder(name: str) -> list[str]:
    folder = str(Path(name).parent)
    return [] if folder == "." else [f"mkdir -p {shlex.quote(folder)}"]


def _links(name: str, source: Path) -> list[str]:
    return [*_folder(name), f"cp -al {shlex.quote(str(source))} {shlex.quote(name)}"]


def _file(name: str, text: str) -> list[str]:
    mark = "END"
    while mark in text.split("\n"):
        mark += "_"
    return [*_folder(name), f"cat > {shlex.quote(name)} <<'{mark}'", text.removesuffix("\n"), mark]
