"""`python -m jobs.runner.remove_folders`: remove what deleted runs left below the run root, on every node.

The console says in PITWALL_FOLDERS which folders, as JSON: `<run id>` or `<run id>/a<attempt>/<part of it>`. Nothing
else can be named, no link is followed, and what is not there is no fault: the job may come again. The last line printed
says what went wrong; the exit code is 0 if nothing of them is left on any node.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NODE_SECONDS = 600.0  # for one node to remove everything
_RUN_ID = re.compile(r"r-[0-9a-z]{1,14}")
_ATTEMPT = re.compile(r"a[0-9]{1,6}")


class FolderRefused(ValueError):
    """The folder is none that a run may have."""


def parts_of(folder: str) -> list[str]:
    """Return the parts of a folder's path below the run root.

    Raises: FolderRefused unless it is a run's own, or lies in one of its attempts.
    """
    parts = folder.split("/")
    is_run = bool(_RUN_ID.fullmatch(parts[0])) and (
        len(parts) == 1 or (len(parts) > 2 and _ATTEMPT.fullmatch(parts[1]))
    )
    if not is_run or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FolderRefused(f"{folder!r} is not the folder of a run or in one; nothing was removed.")
    return parts


def remove(run_root: str, folders: Sequence[str]) -> list[str]:
    """Remove the folders on this node; return a sentence for each that could not be. Raises: FolderRefused."""
    wanted = [parts_of(folder) for folder in folders]
    problems = []
    for parts in wanted:
        try:
            _remove_one(Path(run_root), parts)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{os.uname().nodename}: {'/'.join(parts)}: {error.strerror or error}")
    return problems


def _remove_one(root: Path, parts: Sequence[str]) -> None:
    """Walk down without following links, and remove the last part with what is in it."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        if not stat.S_ISDIR(os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(parts[-1], dir_fd=at)
            return
        for _, folders, files, here in os.fwalk(parts[-1], topdown=False, dir_fd=at, follow_symlinks=False):
            for name in (*files, *folders):
                _unlink(name, here)
        os.rmdir(parts[-1], dir_fd=at)
    finally:
        os.close(at)


def _unlink(name: str, here: int) -> None:
    """Remove a file, a link or an empty folder; another node on the same file system may be quicker."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=here)
        else:
            os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        return


def remove_on_nodes(run_root: str, folders: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Remove the folders on each of the nodes (Ray's ids); return a sentence for whatever could not be."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    task: Any = ray.remote(num_cpus=0)(remove)
    try:
        waiting = {}
        for node in nodes:
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            waiting[task.options(scheduling_strategy=strategy).remote(run_root, list(folders))] = node
        ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=NODE_SECONDS)
        problems = [f"Node {waiting[reference]} did not answer." for reference in late]
        for reference in ready:
            try:
                problems += ray.get(reference)
            except Exception as error:
                why = (str(error).strip().splitlines() or [type(error).__name__])[0]
                problems.append(f"Node {waiting[reference]}: {why}")
        return problems
    finally:
        ray.shutdown()


def main() -> int:
    """Remove what the environment names; return the exit code."""
    run_root = os.environ["PITWALL_RUN_ROOT"]
    folders = json.loads(os.environ["PITWALL_FOLDERS"])
    nodes = json.loads(os.environ.get("PITWALL_NODES", "[]"))
    try:
        for folder in folders:
            parts_of(folder)
        problems = remove_on_nodes(run_root, folders, nodes) if len(nodes) > 1 else remove(run_root, folders)
    except FolderRefused as error:
        problems = [str(error)]
    for problem in problems:
        print(problem, flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
