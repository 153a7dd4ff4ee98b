"""Stored sentences in the language of whoever reads them: a run's history, why it failed, and why it waits.

They are stored in English: people of several languages read them, and some come from the cluster, which knows no
other. What stands here is how they are written; a sentence that was written so, also by an older Pitwall, is said anew
with its own values, every other one stays as it is. tests/jobs/runs/test_stored_sentences.py finds writers of others.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

from profiling.counted import ONE_OF

HISTORY = (
    _("Queued"),
    _("Queued again"),
    _("Starting on the cluster"),
    _("Running"),
    _("Canceled in the queue"),
    _("Stop requested"),
    _("Stop taken back"),
    _("Stopped for its quota: %(why)s"),
    _("Finished"),
    _("Finished: %(why)s"),
    _("Failed"),
    _("Failed: %(why)s"),
    _("Stopped"),
    _("Stopped: %(why)s"),
    _("Clean-up checked: %(count)s processes left"),
    _("Checkpoint asked for"),
    _("Resumed from checkpoint %(step)s, with %(knobs)s as changed while it trained"),
    _("Resumed from checkpoint %(step)s"),
    _("Restarted from the start, with %(knobs)s as changed while it trained"),
    _("Restarted from the start"),
    _("Its retry was canceled"),
    _("Its retry was canceled. %(name)s, who started it, may no longer start runs in this project."),
    _("Its retry was canceled. %(why)s"),
    _("Retries at %(time)s UTC from checkpoint %(step)s instead of %(lost)s, attempt %(number)s: %(why)s"),
    _("Retries at %(time)s UTC from the start instead of checkpoint %(lost)s, attempt %(number)s: %(why)s"),
    _("Retries at %(time)s UTC from checkpoint %(step)s, attempt %(number)s of %(most)s: %(why)s"),
    _("Retries at %(time)s UTC from the start, attempt %(number)s of %(most)s: %(why)s"),
    _("It did not stop on its own; Ray ends its processes"),
    _("%(capture)s: withdrawal asked for"),
    _("%(capture)s asked for"),
    _("%(capture)s deleted"),
    _("%(capture)s is ready"),
    _("%(capture)s goes on: recording had begun when it was withdrawn"),
    _("%(capture)s is withdrawn; nothing was recorded"),
    _("%(capture)s stays armed: the run's release cannot withdraw it"),
    _("%(capture)s failed: %(why)s"),
    _("Capture of up to %(seconds)s s with %(tool)s"),
    _("Capture of up to %(seconds)s s for %(purpose)s"),
    _("Capture of the next step with %(tool)s"),
    _("Capture of the next step for %(purpose)s"),
    _("Capture of the next %(count)s steps with %(tool)s"),
    _("Capture of the next %(count)s steps for %(purpose)s"),
    _("Capture of step %(step)s with %(tool)s"),
    _("Capture of step %(step)s for %(purpose)s"),
    _("Capture of steps %(first)s to %(last)s with %(tool)s"),
    _("Capture of steps %(first)s to %(last)s for %(purpose)s"),
    _("The trainer announced no file of it. Its log says why."),
    _("The trainer does not take it: %(why)s"),
    _("A model of checkpoint %(step)s asked for"),
    _("A model of checkpoint %(step)s was canceled"),
    _("A model of checkpoint %(step)s was not made: %(why)s"),
    _("Asked for %(changes)s"),
    _("Nothing changed: the knobs were so already"),
    _("A change of knobs was refused. %(why)s"),
    _("%(changes)s, from step %(step)s on"),
    _("Checkpoint %(step)s pinned"),
    _("Checkpoint %(step)s no longer pinned"),
    _("Checkpoint %(step)s is pinned: it is not deleted."),
    _("Checkpoint %(step)s is no longer pinned."),
    _("Checkpoint %(step)s is not there (any more), so nothing was pinned."),
    _("Checkpoint %(step)s deleted: newer, better or pinned ones are kept."),
    _("Checkpoint %(step)s saved, %(size)s in %(seconds)s s, of which training waited %(pause)s s"),
    _("Checkpoint %(step)s saved, %(size)s in %(seconds)s s"),
    _("Model of step %(step)s exported to %(name)s, %(size)s in %(seconds)s s"),
    _("%(name)s can be downloaded"),
    _("%(name)s deleted"),
    _("The project's retention put into the trash: %(things)s"),
    _("Taken back out of the trash"),
    _("Its %(kind)s were taken out of the trash"),
    _("Batch %(number)s could not be stored and was left out: %(why)s"),
    _("The run has %(count)s series; %(name)s and further new ones are not kept."),
    _("The trainer is ready"),
    _("The trainer is done"),
    _("The trainer failed"),
    _("All workers have the model"),
    _("Stopped before the first step"),
    _("Stopped before the first step; nothing was trained."),
    _("Trained to the last step; handing over the files"),
    _("Stopped after step %(step)s; handing over the files"),
    _("Training data: %(count)s examples"),
    _("Resumed from %(checkpoint)s in %(seconds)s s (%(then)s ranks then, %(now)s now)"),
    _("Resumed from %(checkpoint)s in %(seconds)s s (%(ranks)s ranks)"),
    _("Ready to record: torch on %(torch)s of %(count)s workers, nsys on %(nsys)s"),
    _("Step %(step)s was skipped: its gradient is not finite."),
    _("Step %(step)s was skipped: the critic's gradient is not finite."),
    _("Step %(step)s was dropped: the run was stopped while responses were scored."),
    _("The evaluation was dropped: the run was stopped while responses were scored."),
    _(
        "Step %(step)s learns from %(kept)s of %(wanted)s groups: of %(drawn)s that were drawn in %(times)s "
        "generations no more have rewards that differ."
    ),
    _("No progress for %(seconds)s s after step %(step)s: stacks of all processes are in the driver's log"),
    _("No progress for %(seconds)s s after step %(step)s: stacks of all processes are in the runner's log"),
    _("The run goes on after %(seconds)s s"),
    _("%(count)s steps planned"),
)
"""Lines of the history. Of two that a text may be, the first is meant."""

CAUSES = (
    _("canceled by %(name)s before it started"),
    _("canceled before it started"),
    _("attempt %(number)s canceled by %(name)s before it started"),
    _("attempt %(number)s canceled before it started"),
    _("stopped before it started"),
    _("ended by Ray, no checkpoint saved"),
    _("after step %(step)s, with a checkpoint"),
    _("before the first step was done, nothing to save"),
    _("before the trainer started"),
    _("%(when)s: it did not save in time and its processes were ended"),
    _("%(when)s: it did not save in time and it ended with %(how)s"),
    _("%(when)s: %(trainer)s was ended. Its newest checkpoint is that of step %(step)s"),
    _("%(when)s: %(trainer)s was ended. It has saved no checkpoint"),
    _("its runner ended without a final report"),
    _("its Ray job was stopped from outside Pitwall"),
    _("its runner was killed (SIGKILL): out of memory, or ended from outside"),
    _("Ray could not prepare its environment: %(why)s"),
    _("the cluster's node has no interpreter %(python)s; set PITWALL_RUNNER_PYTHON to the one of its engine"),
    _("its runner could not begin: the disk of the run directories is full. Free space there"),
    _("its runner could not begin: %(why)s Set PITWALL_RUN_ROOT to a folder that every node can write"),
    _("its runner ended with exit code %(code)s"),
    _("Ray ended its job: %(why)s"),
    _("no reason given"),
    _("no cause was given"),
    _("Ray did not take its job for five minutes"),
    _("cluster lost: Ray no longer knows its job %(job)s. The head was restarted; resume the run."),
    _("its data file was deleted from the console. Upload it again, then clone the run or resume it."),
    _("this console no longer accepts its spec: %(why)s Clone it and launch again."),
    _("the runner was killed, and the trainer with it"),
    _("the runner was killed, and the trainer with it, in step %(step)s"),
    _("the runner failed, and ended the trainer. Its log says where"),
    _("the trainer was not started: %(folder)s does not take files (%(why)s)"),
    _("the trainer was not started: %(why)s"),
    _("%(who)s ran out of device memory%(moment)s. Lower the micro batch size or the share of memory that vLLM takes"),
    _(
        "%(who)s has no room in device memory for the KV cache of one sequence of the greatest length%(moment)s. "
        "Lower that length, or raise the share of memory that vLLM takes"
    ),
    _(
        "%(who)s was killed by Ray because the node ran low on memory%(moment)s. "
        "Use a smaller model or batch, or a larger node"
    ),
    _("%(who)s ran out of host memory%(moment)s. Use a smaller model or batch, or a larger node"),
    _(
        "%(who)s was killed%(moment)s because the node ran out of memory. "
        "Use a smaller model or batch, or a larger node"
    ),
    _("%(who)s found the disk full%(moment)s. Free space where the run directories are, then launch the run again"),
    _("%(who)s needs the Python module %(module)s, which is not installed on the cluster"),
    _("%(who)s is set to use FlashAttention, which is not installed. Choose another attention, such as eager or sdpa"),
    _("%(who)s does not take its command line: %(why)s"),
    _("%(who)s does not take its configuration: %(why)s"),
    _("%(who)s could not read the model or the data: %(why)s"),
    _("%(who)s wanted a network port that is taken. Launch the run again"),
    _("%(who)s could not reach the Ray cluster"),
    _(
        "%(who)s gave a kernel of the device%(moment)s an index that it refuses: often a token or label beyond the "
        "model's vocabulary, or a position beyond its length"
    ),
    _(
        "%(who)s lost its NCCL connection to another rank%(moment)s: a rank died or hangs, or the network between "
        "nodes broke"
    ),
    _("%(who)s lost its NCCL connection to another rank%(moment)s: a rank died, or the network between nodes broke"),
    _("%(who)s lost its gloo connection to another rank%(moment)s: a rank died or hangs"),
    _("%(who)s lost a worker process%(moment)s: Ray says that it died"),
    _("a process of %(name)s died%(moment)s: Ray says so"),
    _("%(who)s lost a node of the cluster%(moment)s"),
    _("%(who)s was killed%(moment)s (SIGKILL), from outside or by a limit of its container"),
    _("%(who)s was ended from outside%(moment)s (SIGTERM)"),
    _("%(who)s was interrupted%(moment)s (SIGINT)"),
    _("%(who)s was ended from outside%(moment)s (SIGHUP): the terminal that it was started from is gone"),
    _("%(who)s crashed in native code%(moment)s (SIGSEGV)"),
    _("%(who)s was aborted by native code%(moment)s (SIGABRT)"),
    _("%(who)s crashed in native code%(moment)s (SIGBUS): often a full /dev/shm"),
    _("%(who)s wrote a file larger than is allowed%(moment)s (SIGXFSZ)"),
    _("%(who)s was ended%(moment)s by %(signal)s"),
    _("%(who)s ended with exit code %(code)s%(moment)s: %(line)s"),
    _("%(who)s ended with exit code %(code)s%(moment)s"),
    _("the trainer"),
    _("%(role)s rank %(rank)s"),
    _("in step %(step)s"),
    _("before the first step was done"),
    _("while saving after step %(step)s"),
    _("while evaluating after step %(step)s"),
    _("while ending after step %(step)s"),
    _("%(role)s rank %(rank)s ran out of memory at %(at)s. Lower %(knob)s, or give it a node with more."),
    _("The disk is full: %(role)s rank %(rank)s could not write at %(at)s. Free space and launch again."),
    _("The disk is full: %(folder)s cannot be written. Free space and launch again."),
    _("The process of %(role)s rank %(rank)s died at %(at)s: %(line)s"),
    _("The answer of %(role)s rank %(rank)s at %(at)s was lost, and Ray reports no dead worker: %(line)s"),
    _("%(role)s rank %(rank)s lost its connection to another rank at %(at)s, and Ray reports no dead worker: %(line)s"),
    _("%(role)s rank %(rank)s raised at %(at)s: %(line)s"),
    _(
        "%(role)s rank %(rank)s has no run directory: %(line)s. Set PITWALL_RUN_ROOT to a folder that every node can "
        "write."
    ),
    _("The driver ran out of memory. Lower the batch, or use a node with more."),
    _("The Ray cluster does not answer: %(line)s"),
    _("The trainer's driver raised %(kind)s: %(line)s"),
    _("step %(step)s (%(phase)s)"),
    _("step %(step)s"),
)
"""Why a run failed or was stopped, and the parts of such sentences."""

WAITS = (
    _("Ray is starting"),
    _("Ray has not responded since %(since)s: %(problem)s"),
    _("Ray prepares its environment"),
    _("Its runner has not reached the console at %(url)s yet"),
    _("Waits for its sweep: %(live)s of %(at_once)s at once are running"),
    _("Waits behind %(run)s, which came first"),
    _("Waits for its quota: project %(owner)s runs %(live)s of %(most)s at once"),
    _("Waits for its quota: %(owner)s runs %(live)s of %(most)s at once"),
    _("Waits for its quota: %(why)s"),
    _("Needs %(asked)s GPUs; the cluster has none."),
    _("Needs %(asked)s GPUs, the cluster has %(total)s: lower policy ranks or rollout engines."),
    _("Needs %(asked)s CPUs, the cluster has %(total)s: lower policy ranks, engines or CPUs per worker."),
    _("One worker needs %(asked)s CPUs, the largest node has %(total)s: lower CPUs per worker."),
    _("Needs %(asked)s GPUs, %(free)s of %(total)s are free; %(held)s"),
    _("Needs %(asked)s CPUs, %(free)s of %(total)s are free; %(held)s"),
)
"""Why a run is not training yet."""

_PARTS = ("why", "who", "when", "at", "moment", "capture")
"""Values that are sentences of this page themselves."""
_SHAPES = {
    "capture": r"Capture of .+?",
    "moment": r"(?: (?:in step|while|before the first step)[^:.(]*?)?",
    "tool": r"\w+",
    "purpose": r"\w+",
    "who": r"the trainer|\w+ rank \d+",
    "role": r"\w+",
    "rank": r"\d+",
    "step": r"[\d,]+",
    "count": r"[\d,?]+",
    "why": r".*",
    "line": r".*",
}
_PLACE = re.compile(r"%\((\w+)\)s")


def say_stored(text: str) -> str:
    """Return a stored sentence in the language of now; one that is not written as above stays as it is."""
    language = get_language() or "en"
    return text if not text or language.startswith("en") else _translation(text, language)


def say_cause(cause: Mapping[str, object]) -> dict[str, object]:
    """Return a run's cause with its sentence in the language of now; `stored_text` is that one where it differs."""
    text = str(cause.get("text") or "")
    now = say_stored(text)
    return dict(cause) if now == text else {**cause, "text": now, "stored_text": text}


@lru_cache(maxsize=4096)
def _translation(text: str, language: str) -> str:
    for template, pattern in _patterns():
        if match := pattern.fullmatch(text):
            return gettext(template) % {name: _part(name, value, language) for name, value in match.groupdict().items()}
    shorter = text.removesuffix(".")  # some say the same as the end of a longer sentence
    translation = _translation(shorter, language) if shorter != text else text
    return text if translation == shorter else translation


def _part(name: str, value: str, language: str) -> str:
    if name not in _PARTS:
        return value
    translation = _translation(value.strip(), language)
    return value if translation == value.strip() else translation


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((template, _pattern(template)) for template in (*HISTORY, *CAUSES, *WAITS))


def _of_one_or_many(text: str) -> str:
    """Return the pattern of what stands behind a value: "1 GPU" is stored where a sentence has GPUs."""
    noun = next((each for each in ONE_OF if text.startswith(f" {each}")), "")
    return re.escape(text).replace(noun, f"(?:{noun}|{ONE_OF[noun]})", 1) if noun else re.escape(text)


def _pattern(template: str) -> re.Pattern[str]:
    pieces = _PLACE.split(template)
    fixed, names = pieces[::2], pieces[1::2]
    shapes = [f"(?P<{name}>{_SHAPES.get(name, '.+?')})" for name in names]
    parts = [re.escape(fixed[0])]
    for shape, text in zip(shapes, fixed[1:], strict=True):
        parts += [shape, _of_one_or_many(text)]
    return re.compile("".join(parts), re.DOTALL)
