"""What happens after the trainer has ended: say how, and hand over the files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from jobs.runner.console_client.console import Console, ConsoleError
from jobs.runner.reporting.shipped_report import ShippedReport
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.trainer import STOPPED_EXIT_CODE, Escalation, Exit
from jobs.runner.uploads import MASKED_TYPES, UploadFailed, hand_over, planned


def outcome(
    ended: Exit,
    *,
    escalation: Escalation,
    progress: TrainerProgress,
    find_cause: Callable[[], Mapping[str, object]],
    other_trainer: str = "",
    saved_step: int = 0,
) -> tuple[str, Mapping[str, object]]:
    """Return the state that the attempt ends in, and its cause.

    `other_trainer` is what people call a trainer that knows nothing of our stops: it is ended, and may save for that.
    `saved_step` is the step of the newest checkpoint that it has left, 0 where there is none.
    """
    has_hung = progress.state == "done" and escalation.is_overdue  # its work was over, only its process was not
    was_ended = bool(other_trainer) and escalation.is_asked and escalation.level > 1
    if (ended.code == 0 and not was_ended) or (has_hung and not escalation.is_asked):
        return "finished", {}
    side = "cluster" if escalation.is_fast else "user"
    base = {"side": side, "role": "driver", "rank": 0, "step": progress.step}
    if other_trainer and escalation.is_asked:
        if saved_step and saved_step == progress.step:
            return "stopped", {**base, "text": f"after step {progress.step}, with a checkpoint"}
        left = f"Its newest checkpoint is that of step {saved_step}" if saved_step else "It has saved no checkpoint"
        return "stopped", {**base, "text": f"{progress.moment}: {other_trainer} was ended. {left}"}
    if (ended.code == STOPPED_EXIT_CODE and not other_trainer) or has_hung:
        if not progress.step:
            return "stopped", {**base, "text": "before the first step was done, nothing to save"}
        return "stopped", {**base, "text": f"after step {progress.step}, with a checkpoint"}
    if escalation.is_asked and not progress.is_over and (escalation.level > 1 or escalation.is_fast):
        how = "its processes were ended" if escalation.level > 1 else f"it ended with {ended.signal_name or ended.code}"
        return "stopped", {**base, "text": f"{progress.moment}: it did not save in time and {how}"}
    return "failed", find_cause()


def hand_over_files(
    *,
    run_dir: Path,
    progress: TrainerProgress,
    console: Console,
    report: ShippedReport,
    wait: Callable[[float], bool],
) -> None:
    """Hand over what the run made. What cannot be handed over is said, and stays in the run directory."""
    for upload in planned(run_dir, progress.artifacts):
        if upload.type in MASKED_TYPES and not report.knows_secrets:
            report.say(f"{upload.name} stays in the run directory: which secrets to hide in it is not known any more.")
            continue
        try:
            hand_over(upload, console=console, wait=wait)
        except UploadFailed as error:
            report.say(str(error))
        except ConsoleError as error:
            report.say(f"{upload.name} stays in the run directory. {error}")
            return
