"""The check of a batch: what is good passes unchanged, what is bad is named."""

import json
from typing import Any

import orjson
import pytest

from jobs.ingest.batches import MAX_EVENTS, BatchInvalid, name_problem, parse_batch
from profiling import events as make
from tests.batches import metric


def body(*batch_events: Any, batch: int = 1, **more: Any) -> bytes:
    return json.dumps({"batch": batch, "events": list(batch_events), **more}).encode()


GOOD = [
    metric(1, loss=float("nan"), reward=float("-inf"), lr=3e-4),
    make.system({"memory_bytes": 2**40}, attempt=1, role="runner", t=5),
    make.span("rollout", start=10, duration=5, attempt=1, step=1, role="vllm", rank=1, name="prefill", depth=1),
    make.log(["a", "b"], attempt=1, role="policy", rank=1, stream="stderr"),
    make.sample(
        attempt=1, step=1, group=0, index=1, prompt="p", completion="c", expected="e", reward=1.0, rewards={}, tokens=3
    ),
    make.artifact("model/final", artifact="model", path="model/final", attempt=1),
    make.state("training", attempt=1, text="Training"),
    make.note("saved", attempt=1, step=3),
]


def test_every_kind_of_event_passes_unchanged() -> None:
    batch = parse_batch(body(*GOOD), attempt=1)

    assert orjson.loads(batch.events) == json.loads(json.dumps(GOOD))
    assert batch.num_events == len(GOOD)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({**metric(1), "kind": "metrics"}, 'kind: "metrics" is not one of metric, span'),
        ({**metric(1), "attempt": 2}, "attempt: 2 is not 1"),
        ({**metric(1), "step": 1.5}, "step: 1.5 is not a whole number"),
        ({**metric(1), "step": True}, "step: true is not a whole number"),
        ({**metric(1), "role": ""}, "role:"),
        ({**metric(1), "rank": -1}, "rank: -1"),
        ({**metric(1), "t": 0}, "t: 0 is not a time"),
        ({**metric(1), "values": [1]}, "values: [1] is not a JSON object"),
        ({**metric(1), "values": {"loss": "nan"}}, 'values.loss: "nan" is not a number'),
        ({**metric(1), "values": {"loss": True}}, "values.loss: true is not a number"),
        ({**metric(1), "values": {"": 1}}, "1 to 120 characters"),
        ({**GOOD[2], "phase": "thinking"}, 'phase: "thinking" is not one of load, data_wait, rollout'),
        ({**GOOD[2], "duration": -1}, "duration: -1"),
        ({**GOOD[3], "stream": "stdlog"}, 'stream: "stdlog" is not one of stdout, stderr'),
        ({**GOOD[3], "lines": "text"}, 'lines: "text" is not a list'),
        ({**GOOD[4], "prompt": None}, "prompt: null is not a text"),
        (
            {**GOOD[5], "path": "../../etc/passwd"},
            'path: "../../etc/passwd" is not a path of 1 to 500 characters inside the run',
        ),
        ({**GOOD[5], "name": "../x"}, 'name: "../x" is not the name of a file: letters'),
        ({**GOOD[6], "role": "runner", "state": "training"}, "does not end an attempt"),
        ({**GOOD[7], "text": 1}, "text: 1 is not a text"),
        ({**GOOD[3], "lines": ["text", 3, 4]}, "lines.1: 3 is not a text"),
        ({**GOOD[4], "reward": "high"}, "reward: \"high\" is not a number; use one, or 'NaN'"),
        ({**GOOD[2], "start": 2**62, "duration": 2**62}, "is too long"),
        ({k: v for k, v in GOOD[2].items() if k != "rank"}, "rank: is missing; it must be a whole number from 0"),
        ({k: v for k, v in GOOD[3].items() if k != "lines"}, "lines: is missing; it must be a list"),
        ({**metric(1), "kind": ["metric"]}, 'kind: ["metric"] is not one of metric, span'),
        ("event", "must be a JSON object"),
    ],
)
def test_a_bad_event_is_named_with_field_value_and_place(event: Any, said: str) -> None:
    with pytest.raises(BatchInvalid) as caught:
        parse_batch(body(metric(1, loss=1.0), event), attempt=1)

    assert caught.value.events == (1,)
    assert caught.value.sentences[0].startswith("events[1].")
    assert said in caught.value.sentences[0]


def test_what_no_schema_knows_passes_as_it_is() -> None:
    event = {"note": {"a": [1]}, **metric(1, loss=1.0), "values": {"whole": 3, "big": 2**63}, "memory": "none"}

    assert orjson.loads(parse_batch(body(event), attempt=1).events) == [event]
    assert b'"whole":3,' in parse_batch(body(event), attempt=1).events


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"batch": -1}', "batch: -1"),
        (b'{"batch": true}', "batch: true"),
        (b'{"batch": 1, "events": {}}', "events: must be a list"),
        (b'{"batch": 1, "events": [NaN]}', "not JSON"),
        (b'{"batch": 0, "events": [{}]}', "heartbeat"),
        (b'{"batch": 0, "answered": [{}]}', "answered[0].number"),
        (b'{"batch": 0, "answered": 3}', "answered: must be a list"),
        (json.dumps({"batch": 1, "events": [0] * (MAX_EVENTS + 1)}).encode(), f"at most {MAX_EVENTS}"),
    ],
)
def test_a_bad_envelope_is_refused_whole(raw: bytes, said: str) -> None:
    with pytest.raises(BatchInvalid) as caught:
        parse_batch(raw, attempt=1)

    assert caught.value.events == ()
    assert said in str(caught.value)


def test_characters_that_a_database_cannot_keep_are_replaced() -> None:
    raw = b'{"batch":1,"events":[{"kind":"log","attempt":1,"step":0,"role":"policy","rank":0,"t":1,"stream":"stdout",'
    raw += rb'"lines":["nul \u0000 here","half \ud83d pair","backslash \\u0000 stays","line\nbreak"]}]}'

    lines = orjson.loads(parse_batch(raw, attempt=1).events)[0]["lines"]

    assert lines == ["nul � here", "half ? pair", "backslash \\u0000 stays", "line", "break"]


def test_an_endless_line_is_cut_and_says_so() -> None:
    batch = parse_batch(body(make.log(["x" * 100_000], attempt=1, role="driver")), attempt=1)

    line = orjson.loads(batch.events)[0]["lines"][0]
    assert len(line) < 17_000
    assert line.endswith("[line cut here]")


@pytest.mark.parametrize("name", ["model/final.tar", "tb/events.1.x", "a", "best-model@step=3.tar"])
def test_plain_names_of_files_pass(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "../a", "a/../b", "a//b", ".ssh", "a b", "a\0", "a/content", "x" * 256]
)
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    assert "cannot name a file" in name_problem(name)
