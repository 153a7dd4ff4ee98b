"""Programs and runs as evidence: written to files, imported, opened."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiling.diagnosis.finding import Finding, diagnose, evaluate_files
from profiling.evidence import CaptureFacts, Evidence, RecordedTrace
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from tests.profiling.corpus.program import Program


@dataclass
class Bench:
    """A folder in which recordings are imported; `close` lets go of what is open."""

    folder: Path
    _stores: list[Store] = field(default_factory=list)
    _made: int = 0

    def of_files(self, *files: Path, capture: CaptureFacts | None = None, role: str = "policy") -> Evidence:
        """Return files, one a rank, as evidence."""
        recorded = []
        for rank, file in enumerate(files):
            import_trace(file, target := file.with_suffix(".store"))
            self._stores.append(Store(target))
            recorded.append(RecordedTrace(store=self._stores[-1], role=role, rank=rank))
        return Evidence(recorded=tuple(recorded), capture=capture)

    def of(self, *programs: Program, capture: CaptureFacts | None = None, cut: float = 1.0) -> Evidence:
        """Return programs, one a rank, as evidence of torch's traces."""
        return self.of_files(*(one.write(self.path("json"), cut=cut) for one in programs), capture=capture)

    def of_nsys(self, program: Program, *, has_session: bool = True, overhead: float = 0.0) -> Evidence:
        """Return a program as evidence of an export of nsys."""
        return self.of_files(program.write_nsys(self.path("sqlite"), has_session=has_session, overhead=overhead))

    def path(self, suffix: str) -> Path:
        """Return a new path."""
        self._made += 1
        return self.folder / f"{self._made}.{suffix}"

    def close(self) -> None:
        """Close what is open, and take it away."""
        for store in self._stores:
            store.close()
        self._stores.clear()
        for path in self.folder.iterdir():
            path.unlink()


def found(evidence: Evidence) -> Sequence[Finding]:
    """Return what all rules say, as a console asks them of a trace."""
    return diagnose(evidence, of_files=evaluate_files(evidence) if evidence.recorded else None)


def fires(findings: Sequence[Finding]) -> dict[str, str]:
    """Return the rules that fire with their level."""
    return {one.key: one.level for one in findings if one.state == "fires"}
