"""A run without progress says where all stand, once; with stand-ins, and with a rank that really stands still."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engine.failures import hang_watch as module
from jobs.engine.failures.hang_watch import HangWatch, patience
from profiling.diagnosis.flights import flights, partings
from profiling.evidence import Evidence, RecordedTrace
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from tests.jobs.engine.conftest import EndedRun


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A watch over two workers, of which one may not answer."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, silent: str = "", run_dir: Path = Path(), flight: bytes = b""
    ) -> None:
        self.clock, self.silent, self.flight = Clock(), silent, flight
        self.lines: list[str] = []
        self.notes: list[tuple[str, int, dict[str, Any]]] = []
        workers: Any = SimpleNamespace(all=lambda: [self._worker(f"policy-{rank}") for rank in range(2)])
        report: Any = SimpleNamespace(
            say=self.lines.append, note=lambda text, *, step, **meta: self.notes.append((text, step, meta))
        )
        monkeypatch.setattr(module, "ray", SimpleNamespace(get=lambda reference, timeout: reference()))
        self.watch = HangWatch(workers=workers, report=report, run_dir=run_dir, clock=self.clock)

    def _worker(self, name: str) -> Any:
        def answer() -> dict[str, tuple[str, ...]]:
            if name == self.silent:
                raise TimeoutError
            return {"MainThread": ("main (a.py:1)", "all_reduce (b.py:2)")}

        def method(value: Any) -> Any:
            return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: value))

        return SimpleNamespace(
            name=name, actor=SimpleNamespace(stacks=method(answer), flight=method(lambda: self.flight))
        )

    def after(self, seconds: float, *, step: int = -1) -> None:
        self.clock.now += seconds
        if step >= 0:
            self.watch.progress(step)
        else:
            self.watch.look()


@pytest.mark.parametrize(("seconds", "limit"), [([], 900.0), ([1.0, 2.0, 3.0], 300.0), ([100.0, 100.0, 900.0], 500.0)])
def test_patience_is_five_minutes_or_five_median_steps(seconds: list[float], limit: float) -> None:
    assert patience(seconds) == limit


def test_it_tells_once_until_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    for step in (1, 2, 3):
        stage.after(100, step=step)
    stage.after(499)
    assert stage.notes == []
    stage.after(1)
    stage.after(400)
    (note,) = stage.notes
    assert note[:2] == ("No progress for 500 s after step 3: stacks of all processes are in the driver's log", 3)
    assert {"where": ["policy-0", "policy-1"], "stack": ["main (a.py:1)", "all_reduce (b.py:2)"]} in note[2]["hang"][
        "stacks"
    ]
    assert "  policy-0, policy-1:" in stage.lines
    stage.after(10, step=4)
    assert stage.notes[-1][0] == "The run goes on after 910 s"
    stage.after(100)
    assert len(stage.notes) == 2


def test_the_first_step_may_take_three_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    stage.after(899)
    assert stage.notes == []
    stage.after(1)
    assert len(stage.notes) == 1


def test_who_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, silent="policy-1")
    stage.after(900)
    assert stage.notes[0][2]["hang"]["silent"] == ["policy-1"]
    assert any("No answer from policy-1" in line for line in stage.lines)


def test_the_newest_collectives_are_written_beside_the_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage(monkeypatch, run_dir=tmp_path, flight=b'{"entries": []}')
    stage.after(900)
    folder = tmp_path / "log" / "flight" / "after-step-0"
    assert sorted(path.name for path in folder.iterdir()) == ["policy-0.fr.json", "policy-1.fr.json"]
    assert stage.lines[-1] == ("The newest collectives of 2 workers are in log/flight/after-step-0, and in logs.zip.")
    Stage(monkeypatch, run_dir=tmp_path / "off").after(900)
    assert not (tmp_path / "off").exists()


@pytest.mark.proof
@pytest.mark.slow("a run of its own that hangs")
@pytest.mark.engine
def test_a_rank_that_stands_still_is_seen_beside_those_that_wait_for_it(start_engine: Any, tmp_path: Path) -> None:
    program = ("tests.jobs.engine.impatient_run",)
    spec = {
        "algorithm": "sft",  # two ranks and the driver are all it takes
        "knobs": {"train.num_steps": 4, "eval.num_prompts": 0, "checkpoint.every_steps": 0},
    }
    ended: EndedRun = start_engine(tmp_path / "hang", spec, program=program).wait()

    assert ended.code == 0, ended.output
    hangs = [e["meta"]["hang"] for e in ended.of("note") if "hang" in e["meta"]]
    (found,) = [{where: " ".join(g["stack"]) for g in hang["stacks"] for where in g["where"]} for hang in hangs]
    assert "stand_still" in found["policy-1"]
    assert "stand_still" not in found["policy-0"]
    assert "gather" in found["driver"]
    assert "stand_still" in ended.output
    assert any("The run goes on" in e["text"] for e in ended.of("note"))

    (dumps,) = [path.parent for path in (tmp_path / "hang" / "log" / "flight").glob("after-step-2/policy-1.fr.json")]
    recorded = []
    for rank in range(2):
        import_trace(dumps / f"policy-{rank}.fr.json", tmp_path / f"{rank}.store")
        recorded.append(RecordedTrace(store=Store(tmp_path / f"{rank}.store")))
    (parting,) = partings(flights(Evidence(recorded=tuple(recorded))))
    assert parting.ranks == (1,)
    assert parting.calls[1] is None
    assert parting.calls[0] is not None
    assert "jobs/engine/" in parting.calls[0].place  # not the library's line that it goes through
