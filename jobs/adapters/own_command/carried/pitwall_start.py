"""`python -m pitwall_start ORDER.json`: fetch the repository if one is named, go to the folder, become the command.

Standard library only; the process that was started is the command in the end, so that signals and its exit code are
its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FAILED = 2
# Nothing of a repository that is fetched is run by Git itself, and no address may name a program.
GIT = ("git", "-c", "protocol.ext.allow=never", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


def main(order_file: str) -> None:
    """Do what the order says; leave with a sentence where it cannot be done."""
    path = Path(order_file)
    order = json.loads(path.read_text("utf-8"))
    home = path.parent.parent
    if not order["argv"]:
        leave("No command is given.")
    if order["git"]:
        home = fetch(order["git"], order["ref"], home / order["source"])
    os.chdir(order["folder"] or home)
    try:
        os.execvp(order["argv"][0], order["argv"])  # noqa: S606 (that is what it is for)
    except OSError as error:
        leave(f"{order['argv'][0]} cannot be started in {Path.cwd()}: {error.strerror}.")


def fetch(address: str, ref: str, folder: Path) -> Path:
    """Clone the repository, check out the branch, tag or commit, and say which commit it is: the runner reads it."""
    run(*GIT, "clone", "--quiet", "--no-checkout", "--", address, str(folder))
    commit = commit_of(folder, ref) if ref else run(*GIT, "-C", str(folder), "rev-parse", "HEAD").strip()
    if not commit:
        leave(f"{address} has no branch, tag or commit {ref}.")
    run(*GIT, "-C", str(folder), "checkout", "--quiet", "--detach", commit)
    print(f"{address} at {commit}", flush=True)
    part = folder.with_name("source.json.part")
    part.write_text(json.dumps({"commit": commit, "remote": address, "folder": str(folder)}), "utf-8")
    part.replace(folder.with_name("source.json"))
    return folder


def commit_of(folder: Path, ref: str) -> str:
    """Return the commit of a tag, branch or commit, "" if there is none: a clone has one branch, others by origin's."""
    for name in (f"refs/tags/{ref}", f"refs/remotes/origin/{ref}", ref):
        argv = (*GIT, "-C", str(folder), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if commit := run(*argv, may_fail=True).strip():
            return commit
    return ""


def run(*argv: str, may_fail: bool = False) -> str:
    """Return what a program says; leave with its last line if it fails and may not."""
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, errors="replace", env=environ)
    if done.returncode and not may_fail:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        leave(f"Git could not fetch the repository: {lines[-1]}")
    return done.stdout


def leave(sentence: str) -> None:
    """End with a sentence."""
    print(sentence, file=sys.stderr, flush=True)
    sys.exit(FAILED)


if __name__ == "__main__":
    main(sys.argv[1])
