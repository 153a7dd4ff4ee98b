"""What stands in the store of a file that was imported, in the words of tests."""

import json
from pathlib import Path
from typing import Any

from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.schema import StoreFacts
from profiling.trace.store import Store

Row = tuple[str, Category, int, int]


def stored(path: Path) -> dict[str, list[Row]]:
    """Import a file; return (name, kind, begin, length) of the events of each lane, in the order of their begins."""
    target = path.parent / "store"
    import_trace(path, target)
    with Store(target) as store:
        titles = [
            f"device {lane.device} stream {lane.stream}" if lane.kind == "stream" else lane.thread or lane.title
            for lane in store.lanes
        ]
        events = store.events(columns=("lane", "name", "cat", "ts", "dur"))
        rows: dict[str, list[Row]] = {title: [] for title in titles}
        for lane, name, kind, begin, lasts in zip(*(events[key].tolist() for key in events), strict=True):
            rows[titles[lane]].append((store.names[name], Category(kind), begin, lasts))
    target.unlink()
    return {title: sorted(lane, key=lambda row: (row[2], -row[3])) for title, lane in rows.items()}


def links(path: Path) -> list[tuple[str, str]]:
    """Return (launch, what it launched) by name, in order."""
    target = path.parent / "store"
    import_trace(path, target)
    with Store(target) as store:
        events = store.events(columns=("name", "cat", "link", "ts"))
        called = {
            link: store.names[name]
            for name, kind, link in zip(*(events[key].tolist() for key in ("name", "cat", "link")), strict=True)
            if link and kind in (Category.RUNTIME, Category.SYNC)
        }
        found = [
            (ts, called[link], store.names[name])
            for name, kind, link, ts in zip(*(events[key].tolist() for key in events), strict=True)
            if link in called and kind not in (Category.RUNTIME, Category.SYNC)
        ]
    target.unlink()
    return [(call, name) for _, call, name in sorted(found)]


def imported(path: Path, folder: Path, **more: Any) -> tuple[StoreFacts, Store]:
    """Import a file; return the facts and the store."""
    target = folder / f"{path.name}.store"
    facts = import_trace(path, target, **more)
    return facts, Store(target)


def trace_of(tmp_path: Path, events: list[Any], **top: Any) -> Path:
    """Write a trace of these events."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": events}))
    return path
