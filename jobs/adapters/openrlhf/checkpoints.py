"""OpenRLHF's checkpoints, which DeepSpeed writes: folders `global_step<N>` beside a file that names the newest one.

Fine-tuning has them in `checkpoints`, reinforcement learning in `checkpoints/_actor` and `_critic`. OpenRLHF goes on
from the newest of its folder and deletes the oldest there, so that an attempt starts with a copy of its own: of links
to the same files, which take no space.

Sources: OpenRLHF utils/deepspeed/deepspeed.py (save_ckpt, load_ckpt), trainer/ray/ppo_actor.py.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from jobs.adapters.checkpoints import MERGE, NoCheckpoints, precision_option
from jobs.adapters.inputs import model_path
from jobs.adapters.launching import Launch
from jobs.adapters.openrlhf.command import FOLDERS
from jobs.adapters.openrlhf.options import RL, RM, is_dotted, program_of
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec

ACTOR, CRITIC = "_actor", "_critic"
LATEST = "latest"
_TAG = re.compile(r"(?:best_)?global_step(\d{1,9})")
_TENSOR = "parallel.tensor_parallel_size"
_WITHOUT_STATES = "checkpoint.weights_only"


class OpenRLHFCheckpoints(NoCheckpoints):
    """OpenRLHF looks for no signal: a stop ends it where it is."""

    def saved(self, *, spec: RunSpec, run_dir: Path) -> Mapping[int, Path]:
        """See TrainerCheckpoints. A folder is whole once DeepSpeed's file names it or a later one, for every role."""
        if spec.values().get(_WITHOUT_STATES):
            return {}
        places = list(_places(spec, run_dir / FOLDERS["checkpoints"]))
        whole = [_whole_folders(place) for place in places]
        return {step: folder for step, folder in whole[0].items() if all(step in other for other in whole[1:])}

    def resumed(self, *, launch: Launch, spec: RunSpec, folder: Path) -> Launch:
        """See TrainerCheckpoints."""
        copies, files = {}, dict(launch.files)
        for place in _places(spec, Path(FOLDERS["checkpoints"])):
            is_other = place.name != folder.parent.name  # the critic's, beside the actor's
            copies[str(place / folder.name)] = folder.parent.parent / place.name / folder.name if is_other else folder
            files[str(place / LATEST)] = folder.name
        option = "--ckpt.load_enable" if is_dotted(spec.trainer.version) else "--load_checkpoint"
        argv = launch.argv if option in launch.argv else (*launch.argv, option)
        return replace(launch, argv=argv, files=files, copies={**launch.copies, **copies})

    def why_no_model(self, spec: RunSpec) -> str:
        """See TrainerCheckpoints: zero_to_fp32 knows no tensor parallel ranks."""
        if int(spec.values().get(_TENSOR) or 1) > 1:
            return Sentence("DeepSpeed's program does not merge what tensor parallel ranks have saved.")
        return ""

    def merge_command(self, *, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:
        """See TrainerCheckpoints."""
        if self.why_no_model(spec):
            return ()
        values = spec.values()
        run_dir = folder.parents[2 if program_of(spec.algorithm) == RL else 1]
        model = str(run_dir / model_path(spec)) if spec.model.kind == "bundled" else spec.model.id
        scores = ("--scores",) if program_of(spec.algorithm) == RM else ()
        # OpenRLHF runs a model's own code without being asked to, so it has run before.
        options = (precision_option(spec), f"--alpha={values.get('lora.alpha', 0)}", "--trust-remote-code", *scores)
        return (python, str(MERGE), "zero", str(folder), model, str(target), *options)


def _places(spec: RunSpec, folder: Path) -> Iterator[Path]:
    if program_of(spec.algorithm) != RL:
        yield folder
        return
    yield folder / ACTOR
    if spec.needs("critic"):
        yield folder / CRITIC


def _whole_folders(place: Path) -> dict[int, Path]:
    """Return the whole folders of a place by step; the usual one of a step, else the best one."""
    try:
        match = _TAG.fullmatch((place / LATEST).read_text("utf-8").strip())
    except OSError:
        return {}
    newest = int(match[1]) if match else 0
    folders: dict[int, Path] = {}
    for path in sorted(place.glob("*global_step*")):  # best_... comes first
        tag = _TAG.fullmatch(path.name)
        if tag and int(tag[1]) <= newest and path.is_dir():
            folders[int(tag[1])] = path
    return folders
