"""What the runner itself reads from the event log: how far the run is, what it made, what it said last."""

import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from profiling.events import ArtifactEvent, Event

MAX_KEPT_LINES = 500
READ_BYTES = 4 << 20


class OtherNode(TypedDict):
    """A node besides the driver's where the trainer has workers; `node` is Ray's id."""

    index: int
    node: str
    name: str
    address: str


@dataclass(slots=True)
class TrainerProgress:
    """The state of the trainer as its events tell it; `read` looks for new ones."""

    path: Path
    step: int = 0
    state: str = ""  # newest state of the driver
    cause: Mapping[str, object] = field(default_factory=dict)  # of a `failed` state
    artifacts: dict[str, ArtifactEvent] = field(default_factory=dict)  # newest announcement by name
    captures: dict[str, dict[str, Any]] = field(default_factory=dict)  # newest state by id, with all `meta` told of it
    other_nodes: list[OtherNode] = field(default_factory=list)  # where the trainer has workers besides here
    actor_lines: deque[tuple[str, int, str]] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_LINES))
    _position: int = 0

    @property
    def is_over(self) -> bool:
        """True if the trainer has said that its work is over."""
        return self.state in ("done", "failed")

    @property
    def moment(self) -> str:
        """Where the trainer is, for a sentence: "in step 12", "while saving after step 60", "while loading"."""
        if self.state in ("saving", "evaluating", "done"):
            return f"while {'ending' if self.state == 'done' else self.state} after step {self.step}"
        return f"in step {self.step + 1}" if self.step else "before the first step was done"

    def latest_lines(self, most: int) -> list[tuple[str, int, str]]:
        """Return the newest log lines of the workers, at most so many of each: role, rank, text, in their order."""
        counts: Counter[tuple[str, int]] = Counter()
        lines = []
        for role, rank, text in reversed(self.actor_lines):
            counts[role, rank] += 1
            if counts[role, rank] <= most:
                lines.append((role, rank, text))
        return lines[::-1]

    def read(self) -> None:
        """Take in what was written since the last call. Lines that are no events are passed over."""
        while True:
            data = self._new_bytes()
            cut = data.rfind(b"\n") + 1
            for line in data[:cut].splitlines():
                self._take(line)
            if not cut and len(data) < READ_BYTES:
                return
            self._position += cut or len(data)

    def _new_bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                return file.read(READ_BYTES)
        except FileNotFoundError:
            return b""

    def _take(self, line: bytes) -> None:
        try:
            event: Event = json.loads(line)
            if event["kind"] == "metric":
                self.step = max(self.step, int(event["step"]))
            elif event["kind"] == "artifact":
                if _can_be_planned(event):
                    self.artifacts[event["name"]] = event
            elif event["kind"] == "capture":
                capture = self.captures.setdefault(event["capture"], {})
                capture |= {**event.get("meta", {}), "state": event["state"]}
            elif event["kind"] == "state" and event.get("role") == "driver":
                self.state = event["state"]
                self.cause = event.get("cause") or self.cause
            elif event["kind"] == "note":
                if isinstance(nodes := event.get("meta", {}).get("nodes"), list) and nodes:
                    self.other_nodes = [_node(n) for n in nodes if int(n["index"]) > 0]
            elif event["kind"] == "log":
                self.actor_lines += [(event["role"], int(event["rank"]), text) for text in event["lines"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return


def _can_be_planned(event: ArtifactEvent) -> bool:
    """Return True if whoever hands files over can use an announcement: what a trainer writes may be anything."""
    path, meta = event.get("path", ""), event.get("meta", {})
    int(event.get("step", -1))
    return isinstance(event["name"], str) and isinstance(path, str) and "\0" not in path and isinstance(meta, dict)


def _node(meta: Mapping[str, Any]) -> OtherNode:
    return {
        "index": int(meta["index"]),
        "node": str(meta["node"]),
        "name": str(meta["name"]),
        "address": str(meta["address"]),
    }


def node_name(node: OtherNode) -> str:
    """Return what people call a node of `Progress.other_nodes`: its name, and its address where that is another."""
    return node["name"] if node["name"] == node["address"] else f"{node['name']} ({node['address']})"
