"""Cutting batches: gapless, bounded, in order, and the same again whenever they are asked for."""

import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.runner.reporting.append_only import AppendFile, Reserve
from jobs.runner.reporting.event_files import MAX_EVENT_BYTES, EventSource, TextSource
from jobs.runner.reporting.outbox import MAX_BYTES, MAX_EVENTS, BatchUnknown, Outbox, OutboxBatch
from jobs.runner.reporting.secrets import NOTHING_HIDDEN, SecretHiding
from jobs.runner.reporting.shipped_report import _sources


def make(run_dir: Path, secrets: SecretHiding = NOTHING_HIDDEN) -> Outbox:
    ticks = iter(range(1, 10**9))
    return Outbox(
        run_dir=run_dir,
        sources=(
            EventSource(name="events", path=run_dir / "events.jsonl", attempt=1, secrets=secrets),
            TextSource(
                name="stdout", path=run_dir / "stdout", attempt=1, role="driver", stream="stdout", secrets=secrets
            ),
            EventSource(name="last_word", path=run_dir / "last_word.jsonl", attempt=1),
        ),
        attempt=1,
        reserve=Reserve(run_dir / ".reserve", size=4096),
        clock_ns=lambda: next(ticks),
    )


def line(**event: Any) -> bytes:
    return (
        json.dumps({"kind": "note", "attempt": 1, "step": 0, "role": "driver", "rank": 0, "t": 1, **event}).encode()
        + b"\n"
    )


def write(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def drain(outbox: Outbox) -> list[OutboxBatch]:
    batches = []
    while (batch := outbox.batch(outbox.next_number)) is not None:
        batches.append(batch)
    return batches


def contents(batches: list[OutboxBatch]) -> list[dict[str, Any]]:
    return [json.loads(event) for batch in batches for event in batch.events]


chunks = st.one_of(
    st.builds(lambda text: ("events.jsonl", line(text=text)), st.text(max_size=200)),
    st.builds(lambda size: ("events.jsonl", line(text="x" * size)), st.integers(100_000, 400_000)),
    st.builds(lambda data: ("events.jsonl", data.replace(b"\n", b"") + b"\n"), st.binary(max_size=40)),
    st.builds(lambda data: ("stdout", data), st.binary(max_size=5000)),
    st.builds(lambda size: ("stdout", b"y" * size), st.integers(10_000, 100_000)),
)


@settings(max_examples=40, deadline=None)
@given(writes=st.lists(st.tuples(chunks, st.booleans()), max_size=25), restart_after=st.integers(0, 25))
def test_any_sequence_of_writes_gives_gapless_bounded_batches_that_never_change(
    writes: list[tuple[tuple[str, bytes], bool]], restart_after: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        outbox = make(run_dir)
        batches: list[OutboxBatch] = []
        for index, ((name, data), is_cut_now) in enumerate(writes):
            write(run_dir / name, data)
            if is_cut_now and (batch := outbox.batch(outbox.next_number)) is not None:
                batches.append(batch)
            if index == restart_after:
                outbox.close()
                outbox = make(run_dir)
        outbox.no_more_writers()
        batches += drain(outbox)
        again = make(run_dir)

        assert [batch.number for batch in batches] == list(range(1, len(batches) + 1))
        assert all(0 < len(batch.events) <= MAX_EVENTS for batch in batches)
        assert all(sum(map(len, batch.events)) + len(batch.events) <= MAX_BYTES for batch in batches)
        assert [again.batch(batch.number) for batch in batches] == batches
        assert again.next_number == outbox.next_number
        notes = [event["text"] for event in contents(batches) if event["kind"] == "note"]
        assert notes == [
            json.loads(data)["text"]
            for (name, data), _ in writes
            if name == "events.jsonl" and data.startswith(b'{"kind"')
        ]
        shown = "".join(
            line for e in contents(batches) if e["kind"] == "log" and e["role"] == "driver" for line in e["lines"]
        )
        told = [data for (name, data), _ in writes if name == "stdout"]
        if not any(b"\r" in data for data in told):  # what comes after it takes the line's place
            assert shown.count("y") >= sum(data.count(b"y" * 10_000) for data in told)


def test_two_thousand_events_are_the_most_in_a_batch(tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl", b"".join(line(text=str(i)) for i in range(4500)))

    batches = drain(make(tmp_path))

    assert [len(batch.events) for batch in batches] == [2000, 2000, 500]
    assert [event["text"] for event in contents(batches)] == [str(i) for i in range(4500)]


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    whole = line(text="later")
    write(tmp_path / "events.jsonl", line(text="now") + whole[:20])

    first = drain(outbox)
    write(tmp_path / "events.jsonl", whole[20:])
    second = drain(outbox)

    assert [event["text"] for event in contents(first)] == ["now"]
    assert [event["text"] for event in contents(second)] == ["later"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"kind": "met', "not JSON"),
        (b'{"kind": "metric", "values": {"loss": NaN}}', "NaN is not JSON"),
        (b'{"kind": "dance"}', "not an event of a known kind"),
        (b'{"kind": "note", "text": "\\ud83d"}', "not JSON"),
        (b'{"kind": "note", "text": "' + b"x" * MAX_EVENT_BYTES + b'"}', "are more than"),
    ],
)
def test_a_line_that_is_no_event_becomes_a_log_line_and_holds_up_nothing(tmp_path: Path, bad: bytes, why: str) -> None:
    write(tmp_path / "events.jsonl", line(text="before") + bad + b"\n" + line(text="after"))

    before, problem, after = contents(drain(make(tmp_path)))

    assert (before["text"], after["text"]) == ("before", "after")
    assert (problem["kind"], problem["role"]) == ("log", "runner")
    assert why in problem["lines"][0]
    assert f"byte {len(line(text='before'))} of events.jsonl" in problem["lines"][0]


def test_a_line_without_end_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl", b"z" * (5 << 20) + b"\n" + line(text="after"))

    events = contents(drain(make(tmp_path)))

    assert events[-1]["text"] == "after"
    assert all(event["role"] == "runner" for event in events[:-1])


def test_an_unfinished_log_line_is_shipped_only_when_nobody_will_finish_it(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    write(tmp_path / "stdout", b"10%\r55%\r100%\nDone, but no line en")

    first = contents(drain(outbox))
    outbox.no_more_writers()
    rest = contents(drain(outbox))

    assert first[0]["lines"] == ["100%"]
    assert rest[0]["lines"] == ["Done, but no line en"]


def test_log_bytes_that_no_database_takes_become_readable(tmp_path: Path) -> None:
    write(tmp_path / "stdout", b"caf\xc3\xa9 \xff \x00 end\r\n")

    (event,) = contents(drain(make(tmp_path)))

    assert event["lines"] == ["caf\u00e9 \ufffd \ufffd end"]


def test_the_terminal_event_comes_after_everything_and_nothing_after_it(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    write(tmp_path / "last_word.jsonl", line(text="last"))
    write(tmp_path / "stdout", b"".join(b"%d\n" % i for i in range(200_000)))
    write(tmp_path / "events.jsonl", line(text="first"))

    batches = drain(outbox)
    write(tmp_path / "events.jsonl", line(text="too late"))

    assert len(batches) > 1
    assert contents(batches)[-1]["text"] == "last"
    assert outbox.batch(outbox.next_number) is None
    assert outbox.number_of_last_cut_with("last_word") == batches[-1].number


def test_durable_batches_leave_memory_and_come_back_from_the_journal_when_asked_for(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    batches = []
    for i in range(5):
        write(tmp_path / "events.jsonl", line(text=str(i)))
        batches += drain(outbox)

    outbox.forget(4)
    restored = outbox.batch(2)

    assert restored == batches[1]
    with pytest.raises(BatchUnknown, match="batch 9"):
        outbox.batch(9)


def test_a_torn_line_of_the_journal_was_never_sent_and_is_cut_anew(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    write(tmp_path / "events.jsonl", line(text="one"))
    (first,) = drain(outbox)
    write(tmp_path / "cuts.jsonl", b'{"batch":2,"t":3,"ran')
    write(tmp_path / "events.jsonl", line(text="two"))

    again = make(tmp_path)

    assert again.batch(1) == first
    assert [event["text"] for event in contents(drain(again))] == ["two"]


def test_refused_events_are_left_out_for_good(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    write(tmp_path / "events.jsonl", b"".join(line(text=str(i)) for i in range(4)))
    (batch,) = drain(outbox)

    outbox.refuse(batch, "events[1] is wrong.", (1, 3))

    for box in (outbox, make(tmp_path)):
        replaced = box.batch(1)
        assert replaced is not None
        texts = [json.loads(event)["text"] for event in replaced.events]
        assert texts == ["0", "2", "2 events of batch 1 are in the run directory only: events[1] is wrong."]
        assert box.next_number == 2
    outbox.refuse(batch, "still wrong", (0,))
    alone = outbox.batch(1)
    assert alone is not None
    assert len(alone.events) == 1


def test_a_runner_without_the_files_goes_on_with_the_number_that_is_expected(tmp_path: Path) -> None:
    outbox = make(tmp_path)
    write(tmp_path / "last_word.jsonl", line(text="last"))

    outbox.skip_to(42)

    assert [batch.number for batch in drain(outbox)] == [42]


def test_a_full_disk_leaves_no_torn_line_and_the_reserve_takes_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve(tmp_path / ".reserve", size=4096)
    file = AppendFile(tmp_path / "file", reserve=reserve)
    file.append(b"one\n")
    real_write = os.write

    def full_while_reserved(fd: int, data: bytes) -> int:
        if (tmp_path / ".reserve").exists():
            if len(data) > 2:
                return real_write(fd, data[:2])
            raise OSError(28, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", full_while_reserved)
    file.append(b"two\n")

    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"
    assert not (tmp_path / ".reserve").exists()


def test_no_secret_leaves_in_lines_causes_or_notes_and_a_batch_made_again_is_the_same(tmp_path: Path) -> None:
    known, shaped = 'open-"sesame"', "hf_" + "aB3" * 11
    outbox = make(tmp_path, SecretHiding([known.encode(), b"1763700000"]))
    sample = {"kind": "sample", "response": f"{known} {shaped}", "t": 1763700000}
    events = [line(text=f"login {shaped}"), line(**sample), line(kind="state", cause={"text": known}), line(text="ok")]
    write(tmp_path / "events.jsonl", b"".join(events))
    write(tmp_path / "stdout", f"export HF_TOKEN={shaped}\nmax_tokens=512 {known}\n".encode())

    batch = outbox.batch(1)

    assert batch is not None
    login, kept, state, plain, lines = contents([batch])
    assert (login["text"], state["cause"], plain["text"]) == ("login ***", {"text": "***"}, "ok")
    assert (kept["response"], kept["t"]) == (f"*** {shaped}", 1763700000)  # data of the run, but for what is known
    assert lines["lines"] == ["export HF_TOKEN=***", "max_tokens=512 ***"]
    assert outbox.batch(1) == batch


def test_the_runner_hides_the_secrets_of_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITWALL_TOKEN", "token-of-this-attempt")
    job: Any = SimpleNamespace(run_dir=tmp_path, attempt=1)

    sources: Any = _sources(job)

    assert {source.secrets.line("with token-of-this-attempt") for source in sources} == {"with ***"}


def test_where_secrets_are_not_known_any_more_no_word_of_a_program_is_told(tmp_path: Path) -> None:
    outbox = make(tmp_path, SecretHiding(None))
    events = [line(kind="metric", values={"loss": 1.5}), line(kind="note", text="signed in with open-sesame")]
    write(tmp_path / "events.jsonl", b"".join(events))
    write(tmp_path / "stdout", b"open-sesame\n")

    batch = outbox.batch(1)

    assert batch is not None
    assert "sesame" not in str(batch)
    assert contents([batch])[0]["values"] == {"loss": 1.5}
