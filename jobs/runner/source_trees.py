"""Folders that a run takes code from, as Git has them: commit, and what was changed and not committed.

Nothing of a repository's own configuration is run for it: no hooks, no monitor, no external diff.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import TypedDict

GIT_SECONDS = 20.0  # of a large repository on a shared disk
MAX_DIFF_CHARS = 32 * 1024
MAX_TREES = 5
_USER = re.compile(r"://[^/@\s]*@")  # a token may stand in the address


class SourceTree(TypedDict):
    """One folder: `commit` in full, `remote` without a user, `diff` of it against the commit, cut to 32 KiB.

    `changes` is a digest of the whole diff and of the names of files that Git does not know; "" for none: two runs with
    the same commit and changes had the same code, but for the content of these files.
    """

    name: str  # of the package that is installed from it, or what it is
    folder: str
    commit: str
    remote: str
    diff: str
    is_cut: bool
    untracked: list[str]
    changes: str


def source_tree(folder: Path, *, name: str) -> SourceTree | None:
    """Return the state of the repository that holds the folder; None where there is none, or no Git."""
    commit = _git(folder, "rev-parse", "HEAD").strip()
    if not commit:
        return None
    diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--", ".")
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", "--", ".").splitlines()
    changes = diff + "\n".join(untracked)
    return {
        "name": name,
        "folder": str(folder),
        "commit": commit,
        "remote": _USER.sub("://", _git(folder, "remote", "get-url", "origin").strip())[:300],
        "diff": diff[:MAX_DIFF_CHARS],
        "is_cut": len(diff) > MAX_DIFF_CHARS,
        "untracked": [name[:200] for name in untracked[:50]],
        "changes": hashlib.sha256(changes.encode("utf-8", "replace")).hexdigest()[:16] if changes else "",
    }


def _git(folder: Path, *arguments: str) -> str:
    """Return what Git says, "" where it refuses or is not there."""
    # The folder may be another user's: it is read and nothing of it is run.
    options = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    try:
        done = subprocess.run(
            ["git", *options, *arguments],
            cwd=folder,
            check=False,
            capture_output=True,
            timeout=GIT_SECONDS,
            env={**environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").replace("\0", "") if done.returncode == 0 else ""
