"""Dumps of the flight recorder brought together: a trace of several ranks, and what the diagnosis says of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.traces.imports import import_layer
from tests.profiling.diagnosis.test_flights import dump, entry
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db


def test_dumps_of_two_ranks_name_the_one_that_never_came(tmp_path: Path, settings: Any) -> None:
    settings.FILES_DIR = tmp_path / "files"
    client = Client(headers={"Host": "localhost"})
    client.force_login(make_user("engineer", project=make_project("theirs")))
    files = {
        "nccl_trace_rank_0": dump(tmp_path / "a", [entry(1), entry(2, over=False)]).read_bytes(),
        "nccl_trace_rank_1": dump(tmp_path / "b", [entry(1)]).read_bytes(),
    }
    body = json.dumps({"files": [{"name": name, "size": len(data)} for name, data in files.items()]})
    trace = client.post("/api/traces?project=theirs", body, content_type="application/json").json()
    for layer, data in zip(trace["layers"], files.values(), strict=True):
        address = f"/api/traces/{trace['id']}/layers/{layer['id']}/content?offset=0"
        assert client.put(address, data, content_type="application/octet-stream").json()["state"] == "queued"
        import_layer(layer_id=layer["id"])

    told = client.get(f"/api/traces/{trace['id']}").json()
    assert [(layer["kind"], layer["state"]) for layer in told["layers"]] == [("flight-recorder", "ready")] * 2
    found = client.get(f"/api/traces/{trace['id']}/diagnosis").json()["findings"]
    (mine,) = [one for one in found if one["rule"] == "collective_mismatch"]
    assert mine["state"] == "fires"
    assert (
        "Collective 2 of process group 1 does not meet: rank 1 —; rank 0 nccl:all_reduce [8] BFloat16"
        in (mine["sentence"])
    )
