"""Events are one line of JSON each, and numbers that are not finite survive."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiling import events
from profiling.memory_marks import MarkMemory
from profiling.phases import BY_KEY, PHASES, STEP_PHASES
from profiling.plugins import UnknownPlugin, load, names


@given(st.floats())
def test_any_float_survives_the_wire(value: float) -> None:
    back = float(json.loads(json.dumps(events.encode_number(value), allow_nan=False)))
    assert back == value or (math.isnan(back) and math.isnan(value))


def test_each_event_is_one_line_with_the_common_keys(tmp_path: Path) -> None:
    log = events.EventLog(tmp_path / "events.jsonl")
    log.write(
        events.metric({"reward/mean": float("nan")}, attempt=1, step=3),
        events.span("rollout", start=10, duration=5, attempt=1, step=3, role="vllm"),
        events.log(["a\nb", "ü"], attempt=1, role="policy", rank=1),
        events.state("training", attempt=1),
    )
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    assert [line["kind"] for line in lines] == ["metric", "span", "log", "state"]
    assert all({"attempt", "step", "role", "rank", "t"} <= set(line) for line in lines)
    assert lines[0]["values"] == {"reward/mean": "NaN"}
    assert lines[1]["t"] == 15
    assert lines[2]["lines"] == ["a\nb", "ü"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda each: st.lists(each)))
def test_what_an_event_carries_besides_comes_back_as_it_was(value: object) -> None:
    line = events.to_line(events.note("é", attempt=1, meta={"value": value}))

    assert line.count(b"\n") == 1
    assert "é".encode() in line
    assert json.loads(line)["meta"]["value"] == json.loads(json.dumps(value), parse_constant=str)


def test_what_has_no_form_in_json_is_refused() -> None:
    for value in ("\ud800", object()):
        with pytest.raises(ValueError, match=r"[Ss]erializ"):
            events.to_line(events.note("a", attempt=1, meta={"value": value}))


def test_the_memory_of_a_span_says_what_was_measured_and_nothing_else() -> None:
    def told(**measured: int) -> object:
        memory = MarkMemory(resident_begin=1, resident_end=2, **measured)
        return events.span("update", start=10, duration=5, attempt=1, step=3, role="policy", memory=memory)["memory"]

    assert told() == {"resident": [1, 2]}
    assert told(device_begin=0, device_end=4, resident_peak=9, device_peak=7, device_reserved_peak=8) == {
        "resident": [1, 2],
        "device": [0, 4],
        "resident_peak": 9,
        "device_peak": 7,
        "device_reserved_peak": 8,
    }


def test_the_vocabulary_of_phases_is_unique_and_ordered() -> None:
    assert len(BY_KEY) == len(PHASES)
    scored = ("rollout", "reward", "old_logprobs", "reference", "advantages")
    assert ("data_wait", *scored, "update", "weight_sync") == STEP_PHASES


def test_a_folder_is_a_registry_and_an_unknown_name_lists_it() -> None:
    assert "math" in names("jobs.engine.rewards")
    with pytest.raises(UnknownPlugin, match="exact_match"):
        load("jobs.engine.rewards", "moon")
