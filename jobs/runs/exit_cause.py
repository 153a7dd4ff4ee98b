"""Name the cause when a job ended without its runner's terminal event, from what Ray kept of it."""

import re

from django.conf import settings
from django.utils.translation import gettext as _

from jobs.catalog.log_line import is_of_profiler
from jobs.cluster.ray_api import JobInfo
from profiling.events import Cause

_KILLED = (137, -9)
_NOT_FOUND = 127  # a shell's word for a program that is not there
_NO_RUN_DIR = "The run directory "  # begins the last line of a runner that could not make one
_FULL_DISK = "No space left on device"
_EXIT_CODE = re.compile(r"exit code (-?\d+)")
_LOG_START = "last available logs"
_NOISE = ("job_manager.py", "Running entrypoint for job")


def exit_cause_of(job: JobInfo) -> Cause:
    """Return the cause of a job's end: side, a sentence, and the last line of its log where Ray has one."""
    head, _sep, tail = job.message.partition(_LOG_START)
    line = _last_line(tail)
    match = _EXIT_CODE.search(head)
    code = job.exit_code if job.exit_code is not None else (int(match.group(1)) if match else None)
    side, text = _sentence(job, code, head.strip(), line)
    return {"side": side, "text": text[:400], "log_line": line, "exit_code": code}


def _sentence(job: JobInfo, code: int | None, head: str, line: str) -> tuple[str, str]:
    if job.status == "SUCCEEDED":
        return "pitwall", _("its runner ended without a final report")
    if job.status == "STOPPED":
        return "cluster", _("its Ray job was stopped from outside Pitwall")
    if code in _KILLED:
        return "cluster", _("its runner was killed (SIGKILL): out of memory, or ended from outside")
    if "runtime_env" in head.lower() or "runtime environment" in head.lower():
        return "cluster", _("Ray could not prepare its environment: %(why)s") % {"why": _first_sentence(head)}
    if code == _NOT_FOUND:
        text = _("the cluster's node has no interpreter %(python)s; set PITWALL_RUNNER_PYTHON to the one of its engine")
        return "cluster", text % {"python": settings.RUNNER_PYTHON}
    if line.startswith(_NO_RUN_DIR) and _FULL_DISK in line:
        return "cluster", _("its runner could not begin: the disk of the run directories is full. Free space there")
    if line.startswith(_NO_RUN_DIR):
        text = _("its runner could not begin: %(why)s Set PITWALL_RUN_ROOT to a folder that every node can write")
        return "cluster", text % {"why": f"{line.rstrip('.')}."}
    if code is not None:
        return "pitwall", _("its runner ended with exit code %(code)s") % {"code": code}
    return "cluster", _("Ray ended its job: %(why)s") % {"why": _first_sentence(head) or _("no reason given")}


def _first_sentence(text: str) -> str:
    return " ".join(text.split())[:300]


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()[1:] if line.strip()]
    telling = [line for line in lines if not (is_of_profiler(line) or any(noise in line for noise in _NOISE))]
    return telling[-1][:500] if telling else ""
