"""What people read off a timeline, over the API: arrows, flame graph, table and CSV, critical path, curves."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.models import Layer, Trace
from jobs.traces.imports import store_path
from profiling.trace.importing import import_trace
from tests.contracts.trace_files_of_others import rocprof_tables
from tests.rows import make_project, make_user, signed_in
from tests.trace_rows import BEGIN, MS, make_layer, make_trace

pytestmark = pytest.mark.django_db

WINDOW: dict[str, Any] = {"from": BEGIN, "to": BEGIN + 200 * MS}


@pytest.fixture
def client(tmp_path: Path, settings: Any) -> Client:
    settings.FILES_DIR = tmp_path / "files"
    return signed_in(make_user("engineer", project=make_project("theirs")))


@pytest.fixture
def trace(client: Client) -> Trace:
    from jobs.models import Project

    made = make_trace(Project.objects.get(slug="theirs"))
    make_layer(made, role="policy", rank=1)
    return made


def asked(client: Client, trace: Trace, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/traces/{trace.pk}/{path}", query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_arrows_cross_ranks(client: Client, trace: Trace) -> None:
    first, second = (layer.pk for layer in trace.layers.order_by("pk"))
    (row,) = asked(client, trace, "events", **WINDOW, where="nccl and length > 1ms", layer=first, limit=1)["rows"]

    (arrow,) = asked(client, trace, f"layers/{first}/events/{row['id']}/arrows")["arrows"]

    assert (arrow["kind"], arrow["source"]["layer"], arrow["target"]["layer"]) == ("collective", first, second)
    assert arrow["source"]["begin"] == arrow["target"]["begin"]
    assert client.get(f"/api/traces/{trace.pk}/layers/{first}/events/999/arrows").status_code == 404


def test_arrows_cross_the_tables_of_a_process_and_the_summary_joins_them(
    client: Client, trace: Trace, tmp_path: Path
) -> None:
    trace.layers.all().delete()
    for path in rocprof_tables(tmp_path)[:2]:
        layer = make_layer(trace)
        store_path(layer).unlink()
        facts = import_trace(path, store_path(layer))
        Layer.objects.filter(pk=layer.pk).update(facts={"begin": facts.begin, "end": facts.end})
    calls, kernels = (layer.pk for layer in trace.layers.order_by("pk"))

    arrows = [asked(client, trace, f"layers/{layer}/events/2/arrows")["arrows"] for layer in (calls, kernels)]
    (worker,) = asked(client, trace, "analysis")["workers"]

    assert arrows[0] == arrows[1]
    ((arrow,), _same) = arrows
    assert (arrow["kind"], arrow["source"]["layer"], arrow["target"]["layer"]) == ("launch", calls, kernels)
    assert worker["launches"]["linked"] == worker["launches"]["kernels"] > 0


def test_a_window_is_summed_up_by_what_called_what(client: Client, trace: Trace) -> None:
    layer = trace.layers.order_by("pk")[0].pk
    found = asked(client, trace, f"layers/{layer}/flame", **WINDOW)

    assert [(one["name"], one["parent"], one["total"] // MS) for one in found["nodes"][:2]] == [
        ("ProfilerStep#3", -1, 100),
        ("ProfilerStep#4", -1, 100),
    ]
    assert found["names"][0]["own"] == 80 * MS
    answer = client.get(f"/api/traces/{trace.pk}/layers/{layer}/flame", {"from": 9, "to": 9})
    assert (answer.status_code, answer.json()["problems"][0]["field"]) == (422, "to")


def test_the_table_is_filtered_sorted_and_downloaded(client: Client, trace: Trace) -> None:
    found = asked(client, trace, "events", **WINDOW, where="category = kernel", sort="begin", order="asc", limit=3)
    assert found["count"] == 40  # of both ranks
    assert [row["short"] for row in found["rows"]] == ["gemm"] * 3
    assert found["rows"][0]["lane_name"] == "GPU 0, stream 7"
    wrong = client.get(f"/api/traces/{trace.pk}/events", {**WINDOW, "where": "nam = x"})
    assert (wrong.status_code, wrong.json()["problems"][0]["field"]) == (422, "where")

    answer = client.get(f"/api/traces/{trace.pk}/events.csv", {**WINDOW, "where": "category = kernel"})
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert (len(rows), rows[0]["name"], rows[0]["length"]) == (40, "gemm<128>", str(4 * MS))


def test_a_window_has_a_critical_path_without_a_hole(client: Client, trace: Trace) -> None:
    found = asked(client, trace, "critical-path", **WINDOW)["segments"]

    ends = [int(one["begin"]) + one["duration"] for one in found]
    assert ends[:-1] == [int(one["begin"]) for one in found[1:]]
    assert {"device", "launch", "host"} <= {one["what"] for one in found}


def test_a_layer_has_curves(client: Client, trace: Trace) -> None:
    layer = trace.layers.order_by("pk")[0].pk
    kinds = {one["kind"]: one["key"] for one in asked(client, trace, f"layers/{layer}/tracks")["tracks"]}
    depth = asked(client, trace, f"layers/{layer}/tracks/{kinds['queue']}", **WINDOW)
    assert (max(depth["v"]), min(depth["v"]), depth["of"]) == (1, 0, 40)
    busy = asked(client, trace, f"layers/{layer}/tracks/{kinds['utilisation']}", **WINDOW)
    assert set(busy["v"]) == {0, 1}
    assert client.get(f"/api/traces/{trace.pk}/layers/{layer}/tracks/none", WINDOW).status_code == 404
