"""Start processes so that nsys can attach to them at any step: what decides that on the node, and what is missing.

Standard library only. The launcher is a few lines of POSIX shell that travel in the runtime environment of a Ray actor,
so that nothing has to be shared between nodes, or before the words of a command. On a node with a working nsys it
starts the process under `nsys launch`, which records nothing until a session is started (profiling.recorders.nsys); on
any other it just starts the process.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from profiling.config import NsysReady, is_torch

SESSION = "PITWALL_NSYS_SESSION"
"""Names the nsys session in a worker that was started under nsys."""

TRACED = "PITWALL_NSYS_TRACE"
"""What that session records, as nsys names it: `nvtx`, or `cuda,nvtx`."""

INJECTED = ("LD_PRELOAD", "NVTX_INJECTION", "CUDA_INJECTION", "NSYS_", "QUADD_", "OPENGL_INJECTION")
"""Beginnings of the variables through which nsys enters a process; nsys itself must not inherit them."""

INSTALL = """\
With root on Debian 12, nsys stands in the section non-free, what it needs in contrib. Its package splits a folder, and
the link joins it again:
    sudo sed -i -E -e 's/^(Components: main).*/\\1 contrib non-free non-free-firmware/' \\
        -e '/^deb /s/ main.*$/ main contrib non-free non-free-firmware/' \\
        $(ls /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null)
    sudo apt-get update && sudo apt-get install -y nsight-systems
    T=$(dirname "$(readlink -f "$(command -v nsys)")")
    H=$(dirname "$(dpkg -L nsight-systems | grep -m1 '/QdstrmImporter$')")
    sudo ln -sfn "$H" "$T/../host-linux-x64"
With root on Ubuntu, nsys stands in the section multiverse:
    sudo add-apt-repository -y multiverse && sudo apt-get update && sudo apt-get install -y nsight-systems
    and then the same three lines for the link.
On a machine with an NVIDIA GPU take NVIDIA's own package, which knows its CUDA: nsight-systems-cli of the CUDA
repository (with root), or the .run file of Nsight Systems (without root):
    sh NsightSystems-linux-*.run --accept --quiet --noexec --target "$HOME/nsight-systems"
    PATH="$(dirname "$(find "$HOME/nsight-systems" -path '*target-linux*' -name nsys | head -1)"):$PATH"
Without root on Debian and Ubuntu, unpack the packages (their section must be listed, as above) and join the folders:
    mkdir -p ~/nsys && cd ~/nsys && apt-get download nsight-systems nsight-systems-target libssh-4
    for package in *.deb; do dpkg -x "$package" .; done
    N=$(find ~/nsys/usr -path '*target-linux-x64/nsys' | head -1)
    H=$(dirname "$(find ~/nsys/usr -name QdstrmImporter | head -1)")
    ln -sfn "$H" "$(dirname "$N")/../host-linux-x64"
    PATH="$(dirname "$N"):$PATH"
Then start Ray on that node again, with that PATH, and start the run again.
"""
"""What to do where nsys is missing: for people, as a block of commands."""

# The first argument of a worker is Ray's program on this node: the interpreter that Ray itself runs with stands beside
# it.
_INTERPRETER = """\
l=${1%%/site-packages/*}; l=${l%%/dist-packages/*}; n=${l##*/}; p=${l%/lib*/"$n"}/bin/$n
[ -x "$p" ] || p=@python@; [ -x "$p" ] || p=python3
"""

# `</dev/null`: without it nsys loses its agent, and the worker never comes up. Of many launches at one moment a few
# fail before the program starts (then the marker file is still there) and leave an agent behind: end it and try again.
_SCRIPT = """\
s=$(command -v nsys) && t=$(dirname "$(readlink -f "$s")") && i=$(ls "$t"/../host-linux-*/QdstrmImporter 2>/dev/null) \\
&& timeout 20 "$i" --version >/dev/null 2>&1 </dev/null && timeout 20 "$s" --version >/dev/null 2>&1 </dev/null \\
|| exec @plain@ "$@"
export PITWALL_NSYS_SESSION PITWALL_NSYS_TRACE=@trace@
for k in 1 2 3; do
  m=$(mktemp) || break
  PITWALL_NSYS_SESSION=pitwall-$$-${m##*.}
  "$s" launch --session-new="$PITWALL_NSYS_SESSION" -t @trace@ --wait=primary \\
    sh -c '@started@rm -f "$0"; exec "$@"' "$m" @program@ "$@" </dev/null
  r=$?
  [ -e "$m" ] || exit $r
  rm -f "$m"
  for d in /proc/[0-9]*; do
    grep -qs -e "--session-name=$PITWALL_NSYS_SESSION" "$d/cmdline" && kill "${d#/proc/}"
  done
done
unset PITWALL_NSYS_SESSION PITWALL_NSYS_TRACE
exec @program@ "$@"
"""


def command(argv: Sequence[str], *, trace: str, pid_file: Path) -> tuple[str, ...]:
    """Return the command that starts `argv` under nsys where the node has it, else as it is; its exit code is that.

    `trace` as in `runtime_env`. Under nsys the program has a session of its own and sees no signal that is sent to this
    command: `pid_file` says then which process it is.
    """
    names = f"PITWALL_NSYS_PID={shlex.quote(str(pid_file))}; export PITWALL_NSYS_PID\n"
    script = _filled(trace=trace, program="", plain="", started='echo $$ > "$PITWALL_NSYS_PID"; ')
    return ("sh", "-c", names + script, "launch_nsys", *argv)


def _filled(*, trace: str, program: str, plain: str, started: str) -> str:
    script = _SCRIPT.replace("@trace@", shlex.quote(trace)).replace("@started@", started)
    return script.replace("@program@", program).replace("@plain@", plain)


def runtime_env(*, ready: NsysReady, trace: str, tool: str = "none", plain: Sequence[str] = ()) -> dict[str, str]:
    """Return the runtime environment of an actor: the launcher as its interpreter, or what starts it without nsys.

    `trace` is what nsys is to record ("nvtx", "cuda,nvtx"). The node decides whether nsys is used. `plain` is the
    command of a worker that nsys does not record, where that is not its interpreter: nsys needs a process of its own,
    so where workers are forked `auto` gives way to them, unless `tool`, asked for at launch, is nsys. On CUDA `auto`
    gives way to `tool` torch: only one of the two can have the GPU's tracing.
    """
    gives_way = (bool(plain) and tool != "nsys") or (is_torch(tool) and "cuda" in trace)
    if ready == "off" or (ready == "auto" and gives_way):
        return {"py_executable": shlex.join(plain)} if plain else {}
    script = _INTERPRETER.replace("@python@", shlex.quote(sys.executable))
    script += _filled(trace=trace, program='"$p"', plain=shlex.join(plain) or '"$p"', started="")
    return {"py_executable": f"sh -c {shlex.quote(script)} launch_nsys"}


CHECK_SECONDS = 20.0


def find_nsys() -> str:
    """Return the path of nsys on this machine, "" if there is none."""
    return shutil.which("nsys") or ""


def problem_of_install() -> str:
    """Return why nsys cannot be used on this machine, "" if it can."""
    nsys = find_nsys()
    node = socket.gethostname()
    if not nsys:
        return f"nsys is not installed on node {node}, or not in the PATH that Ray was started with."
    target = Path(nsys).resolve().parent
    importers = list(target.parent.glob("host-linux-*/QdstrmImporter"))
    if not importers:
        return (
            f"nsys on node {node} cannot write reports: there is no host-linux-x64 beside {target}, as the packages of "
            "Debian and Ubuntu leave it. Make the link that the installation names."
        )
    try:
        done = subprocess.run(
            [str(importers[0]), "--version"], capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nsys on node {node} cannot write reports: {importers[0]} does not run ({error})."
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())[-200:] or f"exit code {done.returncode}"
        return f"nsys on node {node} cannot write reports: {importers[0]} does not run ({output})."
    return ""


def version_of_install() -> str:
    """Return "nsys" and its version as it tells it itself, "" if it does not."""
    try:
        done = subprocess.run(
            [find_nsys(), "--version"],
            env=without_injection(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    _, _, version = done.stdout.strip().partition(" version ")  # "NVIDIA Nsight Systems version 2024.6.2..."
    return f"nsys {version.split()[0]}" if version.split() and done.returncode == 0 else ""


def problem_of_process(environ: Mapping[str, str] = os.environ) -> str:
    """Return why this process cannot be recorded by nsys, "" if it can."""
    if environ.get(SESSION):
        return ""
    return problem_of_install() or (
        f"This worker on node {socket.gethostname()} was not started under nsys, as profile.nsys_ready is off, or "
        "auto where workers start from loaded libraries. Start the run with it on."
    )


def without_injection(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for nsys itself: without the variables through which it entered this process."""
    return {name: value for name, value in environ.items() if not name.startswith(INJECTED)}
