"""A folder that is there complete or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Give a new folder to fill; at the end it is synced and takes the place `final`, replacing what stood there.

    If the body raises, nothing of it is left.
    """
    partial = new_draft(final)
    with or_nothing(partial):
        yield partial
        put_in_place(partial, final)


def new_draft(final: Path) -> Path:
    """Return a new, empty folder for what is to become `final`; what a process that was killed left there is gone."""
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f".{final.name}.draft")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


@contextmanager
def or_nothing(partial: Path) -> Iterator[None]:
    """Remove a draft if the body raises."""
    try:
        yield
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def put_in_place(partial: Path, final: Path) -> None:
    """Let a draft that is complete take the place `final`, replacing what stood there."""
    _sync_tree(partial)
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    partial.rename(final)
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)
