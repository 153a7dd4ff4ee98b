"""`python -m jobs.runner.merge_checkpoint`: make a model of one checkpoint, on its node, and hand it to the console.

Whatever goes wrong becomes a sentence for the person who asked. Nothing is left in the run directory.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.adapters.adapter import adapter
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner.captures.attachable import VARIABLE as ATTACH
from jobs.runner.console_client.console import AttemptFenced, Console, ConsoleError
from jobs.runner.console_client.delivery import deliver
from jobs.runner.console_client.runner_job import EnvironmentIncomplete, RunnerJob, read_job
from jobs.runner.environment import TrainerMissing, environment_for, interpreter, without_secrets
from jobs.runner.merging import MergeSource, NotMerged, merge_checkpoint
from jobs.runner.uploads import SPEC_NAME, UploadFailed, ZipUpload, hand_over

DELIVERY_SECONDS = 24 * 3600.0
HURRIED_DELIVERY_SECONDS = 3.0  # once the cluster wants the job to end


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJob:
    """What is to be made: the model of the checkpoint of `step`, as the console's file `artifact`.

    `number` and `key` are those of the merge, with which the console takes this one file.
    """

    runner: RunnerJob
    number: str
    key: str
    step: int
    artifact: str


def main() -> int:
    """Merge; return 0 if the console has the model or the problem."""
    try:
        number, key, step, artifact = (os.environ[f"PITWALL_{n}"] for n in ("MERGE", "MERGE_KEY", "STEP", "ARTIFACT"))
        job = MergeJob(runner=read_job(os.environ), number=number, key=key, step=int(step), artifact=artifact)
    except (EnvironmentIncomplete, KeyError, ValueError) as error:
        print(f"{error} The console sets this when it submits the job.", file=sys.stderr)
        return 1
    asked_to_end = threading.Event()
    for number_of_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number_of_signal, lambda *_: asked_to_end.set())
    console = Console(job.runner, merge=f"{job.number}:{job.key}")
    try:
        problem = _made(job, console, asked_to_end)
        print(problem or f"{job.artifact} is with the console.", flush=True)
        seconds = HURRIED_DELIVERY_SECONDS if asked_to_end.is_set() else DELIVERY_SECONDS
        return deliver(lambda: console.end_merge(problem), seconds=seconds)
    finally:
        console.close()


def _made(job: MergeJob, console: Console, asked_to_end: threading.Event) -> str:
    """Make the model and hand it over; return why that did not work, "" if it did."""
    try:
        source = _source(job, asked_to_end)
        with merge_checkpoint(source, job.step) as folder:
            where = source.saved().get(job.step, source.run_dir / "checkpoints").relative_to(source.run_dir)
            upload = ZipUpload(
                name=job.artifact,
                folder=folder,
                type="model",
                path=str(where),
                step=job.step,
                extra={SPEC_NAME: source.run_dir / "spec.json"},
                give_up=asked_to_end.is_set,
            )
            hand_over(upload, console=console, wait=asked_to_end.wait)
    except (NotMerged, TrainerMissing) as error:
        return str(error)
    except UploadFailed as error:
        return f"The model was made and could not be handed over. {error.__cause__ or error}"
    except AttemptFenced:
        return "It is not wanted any more."
    except (ConsoleError, OSError) as error:
        return f"The model could not be handed over: {error}"
    return ""


def _source(job: MergeJob, asked_to_end: threading.Event) -> MergeSource:
    """Return whose checkpoint it is, from what the attempt's runner has left. Raises: NotMerged; TrainerMissing."""
    run_dir = job.runner.run_dir
    try:
        spec = parse_spec(json.loads((run_dir / "spec.json").read_text("utf-8")))
        launch = json.loads((run_dir / "launch.json").read_text("utf-8"))
    except SpecInvalid as error:
        raise NotMerged(f"This version no longer accepts the spec of the run: {error}") from error
    except (OSError, ValueError) as error:
        raise NotMerged(f"The run directory {run_dir} is not on this node, {os.uname().nodename}.") from error
    if why := adapter(spec.trainer.name).checkpoints.why_no_model(spec):
        raise NotMerged(why)
    return MergeSource(
        spec=spec,
        python=interpreter(spec.trainer, declared=job.runner.trainers, own_python=sys.executable),
        run_dir=run_dir,
        run_root=job.runner.run_root,
        environ=_environ(spec, run_dir, launch),
        give_up=asked_to_end.is_set,
    )


def _environ(spec: RunSpec, run_dir: Path, launch: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return what the program finds: what the trainer found, without secrets, and nothing that opens console or Ray.

    The devices of the node belong to runs, and so do the captures, for which the program would say that it is there.
    """
    environ = without_secrets(environment_for(spec, os.environ, run_dir))
    environ |= {**launch.get("env", {}), **launch.get("variables", {}), "CUDA_VISIBLE_DEVICES": ""}
    environ.pop(ATTACH, None)
    return environ


if __name__ == "__main__":
    sys.exit(main())
