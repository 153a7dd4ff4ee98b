"""Traces of vLLM workers in processes of their own, with a stand-in that writes files as vLLM names them."""

from pathlib import Path

import pytest

from jobs.engine.roles.engine_trace import EngineTrace


class Engine:
    """Writes one trace and one table a worker into the folder it was configured with."""

    def __init__(self, trace: EngineTrace, *, num_workers: int) -> None:
        self.folder = Path(trace.arguments()["profiler_config"]["torch_profiler_dir"])
        self.num_workers, self.round = num_workers, 0

    def start_profile(self) -> None:
        self.round += 1

    def stop_profile(self) -> None:
        for rank in reversed(range(self.num_workers)):
            (self.folder / f"rank{rank}.{self.round}.pt.trace.json.gz").write_text(f"{rank} {self.round}")
            (self.folder / f"rank{rank}.{self.round}.profiler_out.txt").write_text("a table")


def test_each_window_gives_a_file_a_worker(tmp_path: Path) -> None:
    trace = EngineTrace()
    engine = Engine(trace, num_workers=2)

    for number in (1, 2):
        trace.start(engine)
        found = trace.stop(engine, stem=tmp_path / "traces" / f"cap{number}-vllm-0")

        assert [path.name for path in found] == [f"cap{number}-vllm-0-worker{i}.pt.trace.json.gz" for i in range(2)]
        assert [path.read_text() for path in found] == [f"0 {number}", f"1 {number}"]


def test_an_engine_that_wrote_nothing_is_told(tmp_path: Path) -> None:
    trace = EngineTrace()
    engine = Engine(trace, num_workers=0)
    trace.start(engine)

    with pytest.raises(FileNotFoundError, match="wrote no trace"):
        trace.stop(engine, stem=tmp_path / "x")
