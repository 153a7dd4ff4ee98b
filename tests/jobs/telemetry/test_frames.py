"""Frames: columns that give back every number, also those JSON has no word for."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.telemetry.columns import collect, collect_spans
from jobs.telemetry.frames import LogBlock, decode_frame, encode_frame
from profiling import events as make
from tests.batches import T0, metric

numbers = st.floats(allow_nan=True, allow_infinity=True)
names = st.sampled_from(["loss", "reward/mean", "lr", "kl"])
lanes = st.tuples(st.sampled_from(["driver", "policy"]), st.integers(0, 1))
metrics = st.lists(st.tuples(lanes, st.integers(0, 50), st.dictionaries(names, numbers, min_size=1)), max_size=30)


def round_trip(events: list[Any]) -> dict[str, Any]:
    return decode_frame(encode_frame(seq=1, attempt=1, events=events, logs=[]))


@given(metrics)
def test_every_point_comes_back_in_order_with_nan_and_infinity(rows: list[Any]) -> None:
    events = [metric(step, role=role, rank=rank, **values) for (role, rank), step, values in rows]

    found = collect([round_trip(events)])

    expected: dict[Any, list[tuple[int, float]]] = {}
    for (role, rank), step, values in rows:
        for name, value in values.items():
            expected.setdefault(("metric", name, role, rank), []).append((step, value))
    assert set(found) == set(expected)
    for key, pairs in expected.items():
        assert found[key].x.tolist() == [x for x, _ in pairs]
        for got, (_, value) in zip(found[key].y.tolist(), pairs, strict=True):
            assert got == value or (math.isnan(got) and math.isnan(value))


def test_a_metric_that_an_event_lacks_is_null_not_nan() -> None:
    frame = round_trip([metric(1, loss=1.0), metric(2, loss=float("nan"), reward=3.0)])

    assert frame["metrics"] == [
        {
            "role": "driver",
            "rank": 0,
            "steps": [1, 2],
            "t": [str(T0 + 10**9), str(T0 + 2 * 10**9)],
            "values": {"loss": [1.0, "NaN"], "reward": [None, 3.0]},
        }
    ]


def test_times_travel_as_strings_and_come_back_to_the_nanosecond() -> None:
    start = 1_790_000_000_123_456_789
    event = make.span(
        "update", start=start, duration=17, attempt=1, step=4, role="policy", rank=1, depth=1, name="adam"
    )

    frame = round_trip([event])

    assert frame["spans"][0]["start"] == [str(start)]
    spans = collect_spans([frame])["policy", 1]
    assert (spans.start[0], spans.duration[0], spans.step[0], spans.depth[0]) == (start, 17, 4, 1)
    assert (spans.phases[spans.phase[0]], spans.names[spans.name[0]]) == ("update", "adam")


def test_logs_samples_notes_states_and_artifacts_are_announced() -> None:
    sample = make.sample(
        attempt=1, step=2, group=0, index=0, prompt="p", completion="c", expected="", reward=0.5, rewards={}, tokens=1
    )
    events: list[Any] = [
        sample,
        {**sample, "index": 1},
        make.note("saved", attempt=1, step=2),
        make.state("evaluating", attempt=1, text="Evaluating"),
        make.artifact("model/best", artifact="model", path="model/best", attempt=1, step=2),
    ]
    logs = [LogBlock(role="vllm", rank=0, stream="stdout", first_line=7, lines=["hello"])]

    frame = decode_frame(encode_frame(seq=9, attempt=2, events=events, logs=logs))

    assert (frame["type"], frame["seq"], frame["attempt"]) == ("frame", 9, 2)
    assert frame["samples"] == [{"step": 2, "is_eval": False, "count": 2}]
    assert frame["logs"] == [{"role": "vllm", "rank": 0, "stream": "stdout", "first_line": 7, "lines": ["hello"]}]
    assert [n["text"] for n in frame["notes"]] == ["saved"]
    assert [(s["role"], s["state"], s["text"]) for s in frame["states"]] == [("driver", "evaluating", "Evaluating")]
    assert frame["artifacts"] == [{"name": "model/best", "type": "model", "step": 2}]
