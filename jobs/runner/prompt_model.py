"""`python -m jobs.runner.prompt_model`: answer one prompt with a model that a run exported, and tell the console.

Whatever goes wrong becomes a sentence for the person who asked.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from jobs.runner.console_client.console import Console, ConsoleError, RequestRejected
from jobs.runner.console_client.delivery import deliver
from jobs.runner.console_client.runner_job import EnvironmentIncomplete, RunnerJob, read_job
from jobs.runner.environment import without_secrets
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.uploads import SPEC_NAME

MAX_NEW_TOKENS = 256
_HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
GIVE_UP_SECONDS = 240.0  # the console gives up after 300


class ModelAnswer(TypedDict, total=False):
    """What the model said, or why it said nothing."""

    text: str
    token_ids: list[int]
    problem: str


class NotAnswered(Exception):
    """The model said nothing; the sentence says why."""


def main() -> int:
    """Answer; return 0 if the console has the answer or the problem."""
    try:
        job = read_job(os.environ)
        answer_id, artifact, prompt = (os.environ[f"PITWALL_{name}"] for name in ("ANSWER", "ARTIFACT", "PROMPT"))
    except (EnvironmentIncomplete, KeyError) as error:
        print(f"{error} The console sets this when it submits the job.", file=sys.stderr)
        return 1
    console = Console(job)
    try:
        body = _try(job, console, artifact, prompt)
        print(body.get("problem") or f"Answered with {len(body['token_ids'])} tokens.", flush=True)
        return deliver(lambda: console.answer(answer_id, body), seconds=GIVE_UP_SECONDS)
    finally:
        console.close()


def _try(job: RunnerJob, console: Console, artifact: str, prompt: str) -> ModelAnswer:
    try:
        with tempfile.TemporaryDirectory(prefix="pitwall-answer-") as folder:
            return _answer(job, console, artifact, prompt, Path(folder))
    except NotAnswered as error:
        return {"problem": str(error)}
    except ConsoleError as error:
        return {"problem": f"The model could not be fetched from the console. {error}"}
    except Exception as error:  # whatever a model's files can make transformers raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return {"problem": f"The model in {artifact} could not answer: {first}"[:500]}


def _answer(job: RunnerJob, console: Console, artifact: str, prompt: str, folder: Path) -> ModelAnswer:
    model = local_folder(job, artifact) or _fetch(console, artifact, folder)
    if not (model / "config.json").is_file():
        raise NotAnswered(f"{artifact} holds no config.json, so it is no model that transformers can load.")
    data = data_of(model / SPEC_NAME, job.run_dir / "spec.json")
    return _generated(
        {
            "folder": str(model),
            "prompt": prompt,
            "system_prompt": str(data.get("system_prompt") or ""),
            "template_variables": data.get("chat_template_kwargs") or {},
            "device": job.device,
            "max_new_tokens": MAX_NEW_TOKENS,
        }
    )


def _generated(question: Mapping[str, object]) -> ModelAnswer:
    """Return what the model says, loaded in a process that has none of this one's tokens. Raises: NotAnswered."""
    done = subprocess.run(
        [sys.executable, "-m", "jobs.runner.generation"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        env=without_secrets(os.environ, *_HUB_TOKENS),
        check=False,
    )
    if done.returncode == 0:
        answer: ModelAnswer = json.loads(done.stdout)
        return answer
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if said.startswith(("ModuleNotFoundError", "ImportError")):
        text = f"The cluster's Python cannot load models: {said.partition(': ')[2]}."
        raise NotAnswered(f"{text} Install the engine's requirements there.")
    raise RuntimeError(said)


def data_of(*specs: Path) -> Mapping[str, Any]:
    """Return the section `data` of the first spec that can be read: how prompts were laid out in training."""
    for path in specs:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return dict(json.loads(path.read_text(encoding="utf-8"))["data"])
    return {}


def local_folder(job: RunnerJob, artifact: str) -> Path | None:
    """Return where the run wrote the artifact, if that was on this node."""
    progress = TrainerProgress(path=job.run_dir / "events.jsonl")
    progress.read()
    made = progress.artifacts
    event: Mapping[str, object] = made.get(artifact) or made.get(artifact.removesuffix(".zip")) or {}
    folder = job.run_dir / str(event.get("path", ""))
    is_ours = bool(event) and folder.resolve().is_relative_to(job.run_dir.resolve())
    return folder if is_ours and (folder / "config.json").is_file() else None


def _fetch(console: Console, artifact: str, folder: Path) -> Path:
    archive = folder / "model.zip"
    try:
        console.fetch_file(artifact, archive)
    except RequestRejected as error:
        if error.status == 404:
            raise NotAnswered(f"The console has no ready file {artifact}.") from error
        raise
    target = folder / "model"
    try:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(target)  # zipfile keeps every name inside the target
    except zipfile.BadZipFile as error:
        raise NotAnswered(f"{artifact} is no zip of a model folder.") from error
    return target


if __name__ == "__main__":
    sys.exit(main())
