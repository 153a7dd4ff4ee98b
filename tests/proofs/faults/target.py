"""What is broken, how, and what must come of it."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from tests.proofs.faults import trainer
from tests.proofs.faults.stack import Stack, until

OUTAGE_SECONDS = 15.0  # of what is taken away and given back
CONSOLE_SECONDS = 120.0
SHORT_SECONDS = 10.0  # an outage up to this leaves a run of so few steps time for the next one


@dataclass(frozen=True, slots=True)
class Scene:
    """The run that a fault is meant for."""

    stack: Stack
    run: str

    @property
    def run_dir(self) -> Path:
        """The run directory of its first attempt."""
        return self.stack.runs / self.run / "a1"

    @property
    def disk(self) -> Path:
        """The run's own small disk, where it has one."""
        return self.stack.runs / self.run


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`hit` breaks it, `mend` repairs it `outage` seconds later (None: whoever supervises it does, at once).

    `state`, `side` and `cause` (a pattern) are how the run must end. `needs`: the role whose process must be there.
    `is_cluster_wide`: every run on the cluster shares its fate. `has_disk`: the run gets a small disk of its own.
    `layout` is that of the run.
    """

    name: str
    text: str
    hit: Callable[[Scene], None]
    mend: Callable[[Scene], None] | None = None
    outage: float = 0.0
    state: Literal["finished", "failed"] = "finished"
    side: str = ""
    cause: str = ""
    needs: str = ""
    is_cluster_wide: bool = False
    has_disk: bool = False
    layout: str = "split"

    @property
    def needs_runs_of_its_own(self) -> bool:
        """Whether each moment takes a run: this ends it, or takes longer than its few steps."""
        return self.state == "failed" or self.outage > SHORT_SECONDS


def _process(scene: Scene, name: str) -> psutil.Process:
    find = {"runner": lambda: trainer.runner(scene.run)}.get(
        name,
        (lambda: scene.stack.service(name))
        if name in ("web", "worker", "ingest", "reconcile", "redis")
        else lambda: trainer.worker(scene.run, scene.run_dir, name),
    )
    found: psutil.Process = until(find, seconds=180, what=f"{name} has a process")
    return found


def _kill(name: str) -> Callable[[Scene], None]:
    return lambda scene: _process(scene, name).kill()


def _suspend(name: str) -> Callable[[Scene], None]:
    return lambda scene: _process(scene, name).suspend()


def _resume(name: str) -> Callable[[Scene], None]:
    return lambda scene: _process(scene, name).resume()


def _fill(folder: Path) -> None:
    """Leave not one byte free."""
    with contextlib.suppress(OSError), (folder / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1 << 9, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def _free(folder: Path) -> None:
    (folder / "ballast").unlink()


def _lost(role: str) -> dict[str, str]:
    return {"state": "failed", "side": "cluster", "cause": r"killed|died|lost", "needs": role}


_SPLIT: tuple[Target, ...] = (
    *(
        Target(name=name, text=f"`kill -9` of {name}; the supervisor starts it again", hit=_kill(name))
        for name in ("web", "worker", "ingest", "reconcile", "redis")
    ),
    Target(name="flushall", text="Redis wiped (FLUSHALL)", hit=lambda scene: scene.stack.redis_cli("FLUSHALL")),
    Target(
        name="console",
        text=f"the whole console down for {CONSOLE_SECONDS:.0f} s (`kill -9` of its supervisor)",
        hit=lambda scene: scene.stack.kill_console(),
        mend=lambda scene: scene.stack.restart_console(),
        outage=CONSOLE_SECONDS,
    ),
    Target(
        name="connection",
        text=f"the connection between runner and console cut for {OUTAGE_SECONDS:.0f} s",
        hit=lambda scene: scene.stack.line.cut(),
        mend=lambda scene: scene.stack.line.mend(),
        outage=OUTAGE_SECONDS,
    ),
    Target(
        name="database-full",
        text=f"the database's disk full for {OUTAGE_SECONDS:.0f} s",
        hit=lambda scene: _fill(scene.stack.database),
        mend=lambda scene: _free(scene.stack.database),
        outage=OUTAGE_SECONDS,
    ),
    *(
        Target(
            name=f"{name}-stopped",
            text=f"{name} stopped (SIGSTOP), continued after {OUTAGE_SECONDS:.0f} s",
            hit=_suspend(name),
            mend=_resume(name),
            outage=OUTAGE_SECONDS,
            needs=name if name in ("runner", "policy") else "",
        )
        for name in ("web", "ingest", "redis", "runner", "policy")
    ),
    Target(
        name="runner",
        text="`kill -9` of the runner",
        hit=_kill("runner"),
        state="failed",
        side="cluster",
        cause="runner was killed",
        needs="runner",
    ),
    Target(name="policy", text="`kill -9` of policy rank 0", hit=_kill("policy"), **_lost("policy")),  # type: ignore[arg-type]
    Target(name="vllm", text="`kill -9` of the vLLM engine", hit=_kill("vllm"), **_lost("vllm")),  # type: ignore[arg-type]
    Target(name="reference", text="`kill -9` of the reference", hit=_kill("reference"), **_lost("reference")),  # type: ignore[arg-type]
    Target(
        name="ray",
        text="`kill -9` of the Ray head and all on it; another one starts",
        hit=lambda scene: scene.stack.kill_head(),
        mend=lambda scene: scene.stack.start_head(),
        state="failed",
        side="cluster",
        cause="cluster lost|Ray",
        is_cluster_wide=True,
    ),
    Target(
        name="checkpoint-disk",
        text="the disk of the run directory full",
        hit=lambda scene: _fill(scene.disk),
        state="failed",
        side="cluster",
        cause="disk .*full|does not take files|No space",
        has_disk=True,
    ),
)

BY_LAYOUT = {
    "colocated": ("policy", "policy-stopped", "checkpoint-disk", "runner"),
    "shared": ("policy", "vllm", "policy-stopped", "checkpoint-disk", "runner"),
}
"""What is broken in the other layouts, too: all that hits a process of the run, as far as the layout has it, and the
disk that its ranks write to. The others hit what does not know of layouts.
"""


def _in_layout(target: Target, layout: str) -> Target:
    return replace(target, name=f"{target.name}-{layout}", text=f"{layout}: {target.text}", layout=layout)


TARGETS: tuple[Target, ...] = (
    *_SPLIT,
    *(
        _in_layout(target, layout)
        for layout, names in BY_LAYOUT.items()
        for name in names
        for target in _SPLIT
        if target.name == name
    ),
)
BY_NAME = {target.name: target for target in TARGETS}
