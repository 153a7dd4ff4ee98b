"""Files of traces that are imported again, and stores that are damaged."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from jobs.models import Layer, Run
from jobs.traces.imports import MOST_TRIES, import_layer, queue_lost, source_path, store_path
from jobs.traces.turns import LOST_AFTER
from profiling.trace.store import NotAStore, Store, is_whole, opened
from tests.rows import make_project, make_run, make_user, signed_in
from tests.trace_rows import BEGIN, make_layer, make_trace, torch_file

pytestmark = pytest.mark.django_db

_HEAD, _BLOCK = 3 * 4096, 256 << 10  # of a file of DuckDB


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Any) -> None:
    settings.FILES_DIR = tmp_path / "files"


@pytest.fixture
def run() -> Run:
    return make_run(project=make_project("theirs"))


@pytest.fixture
def client(run: Run) -> Client:
    return signed_in(make_user("engineer", project=run.project))


@pytest.fixture
def layer(run: Run) -> Layer:
    return make_layer(make_trace(run.project, run=run), data=torch_file())


def again(client: Client, layer: Layer) -> dict[str, Any]:
    """Import it again as a page does; return what it is then."""
    asked = client.post(f"/api/traces/{layer.trace_id}/layers/{layer.pk}/import")
    assert (asked.status_code, asked.json()["state"]) == (200, "queued")
    import_layer(layer_id=layer.pk)
    found = client.get(f"/api/traces/{layer.trace_id}").json()["layers"]
    return dict(next(one for one in found if one["id"] == layer.pk))


def damage(store: Path) -> None:
    """Change a byte of a block that is read only when something is asked for."""
    whole = store.read_bytes()
    for place in range(_HEAD + _BLOCK // 2, len(whole), _BLOCK):
        for at in range(place - _BLOCK // 2 + 8, place + _BLOCK // 2, 4096):
            store.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
            try:
                Store(store).close()
            except NotAStore:
                break  # a block that is read at once
            if not is_whole(store):
                return
    raise AssertionError("no block is read late")


def test_a_file_that_is_imported_again_is_shown_anew_and_nothing_old_is_served(client: Client, layer: Layer) -> None:
    address = f"/api/traces/{layer.trace_id}/layers/{layer.pk}"
    before = client.get(address).json()
    tile = f"{address}/tiles/50/0"
    old = client.get(f"{tile}?made={before['made']}")
    assert "immutable" in old["Cache-Control"]

    after = again(client, layer)

    assert (after["state"], after["events"]) == ("ready", 3)  # those of the file
    assert before["events"] != 3
    assert client.get(address).json()["made"] == after["made"] != before["made"]
    new = client.get(f"{tile}?made={after['made']}", headers={"If-None-Match": old["ETag"]})
    assert new.status_code == 200
    assert new.content != old.content
    assert client.get(tile)["Cache-Control"] == "no-store"  # who does not say which import it means


def test_an_import_again_that_fails_keeps_what_there_was(client: Client, layer: Layer) -> None:
    before = store_path(layer).read_bytes()
    source_path(layer).unlink()

    after = again(client, layer)

    assert (after["state"], after["events"]) == ("ready", layer.facts["events"])
    assert after["problem"] == (
        "It was not imported again, what was there before is kept: "
        "The file is not on the console's disk any more. Upload it again."
    )
    assert store_path(layer).read_bytes() == before
    assert client.get(f"/api/traces/{layer.trace_id}/layers/{layer.pk}").status_code == 200


def test_of_a_damaged_store_nothing_is_kept_by_an_import_that_fails(client: Client, layer: Layer) -> None:
    store_path(layer).write_bytes(b"no store" * 1000)
    source_path(layer).write_bytes(b"no trace")

    after = again(client, layer)

    assert (after["state"], "no format" in after["problem"]) == ("failed", True)


def test_an_import_again_that_breaks_off_again_and_again_keeps_what_there_was(run: Run, layer: Layer) -> None:
    values = {"state": "importing", "tries": MOST_TRIES, "seen_at": timezone.now() - 2 * LOST_AFTER}
    Layer.objects.filter(pk=layer.pk).update(**values)
    told = Run.objects.get(pk=run.pk).capture_changes

    queue_lost(now=timezone.now())

    layer.refresh_from_db()
    assert (layer.state, "stopped 3 times" in layer.problem) == ("ready", True)
    assert Run.objects.get(pk=run.pk).capture_changes == told + 1  # open pages of the run read it


def test_damage_that_is_met_while_reading_is_named_and_mended(client: Client, layer: Layer) -> None:
    damage(store_path(layer))
    said = "What was imported of rank0.json cannot be read. Try again; if it still fails, import the file again."
    root = f"/api/traces/{layer.trace_id}"

    for address in ("search?q=mm", f"summary?from={BEGIN}&to={BEGIN + 10**9}", "analysis", "diagnosis"):
        answer = client.get(f"{root}/{address}")
        assert (address, answer.status_code) == (address, 409)
        assert answer.json()["problems"][0]["message"] == said

    assert again(client, layer)["state"] == "ready"
    assert client.get(f"{root}/search?q=mm").status_code == 200


def test_a_file_that_an_older_version_imported_says_so_until_it_is_imported_again(client: Client, layer: Layer) -> None:
    del layer.facts["revision"]  # as older ones were written
    layer.save()
    page = f"/traces/{layer.trace_id}/files"

    before = client.get(page).content.decode()
    imported = again(client, layer)

    assert "data-outdated" in before
    assert imported["state"] == "ready"
    assert not imported["is_outdated"]
    assert "data-outdated" not in client.get(page).content.decode()


def test_a_store_of_another_version_is_named_on_the_timeline(client: Client, layer: Layer) -> None:
    store_path(layer).write_bytes(b"no store" * 1000)

    answer = client.get(f"/api/traces/{layer.trace_id}/layers/{layer.pk}")

    assert (answer.status_code, "rank0.json cannot be read" in answer.json()["problems"][0]["message"]) == (409, True)


@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_the_trace_whose_file_is_damaged_is_the_one_that_is_led_to(
    client: Client, layer: Layer, *, is_other: bool, is_late: bool
) -> None:
    sound = make_trace(layer.trace.project, name="sound")
    sound.layers.update(file_name="sound.json")
    if is_late:
        damage(store_path(layer))
    else:
        store_path(layer).write_bytes(b"no store" * 1000)
    one, other = (sound.pk, layer.trace_id) if is_other else (layer.trace_id, sound.pk)

    page = client.get(f"/traces/{one}/difference?other={other}").content.decode()

    assert "What was imported of rank0.json cannot be read" in page
    assert f'class="btn btn-sm" href="/traces/{layer.trace_id}/files"' in page


def test_requests_at_once_share_what_is_read_of_a_store(layer: Layer) -> None:
    first = Store(store_path(layer))
    second, third = first.another(), first.another()
    count = "SELECT count(*) FROM ev"
    assert second._connection.execute(count).fetchone() == (layer.facts["events"],)

    first.close()  # whoever opened it may be the first to go
    second.close()

    assert third._connection.execute(count).fetchone() == (layer.facts["events"],)
    assert third.lanes == third.another().lanes
    third.close()
    open_files = [Path(link).resolve() for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert store_path(layer).resolve() not in open_files


def test_a_request_that_fails_takes_nothing_from_the_others(layer: Layer) -> None:
    path = store_path(layer)
    with opened(path) as one:
        with pytest.raises(ValueError, match="planted"), opened(path):
            raise ValueError("planted")
        with opened(path) as other:
            assert one is not other
            assert one.names == other.names


def test_a_trace_whose_times_count_from_its_begin_leads_to_no_moment_of_the_run(client: Client, run: Run) -> None:
    trace = make_trace(run.project, run=run)
    assert client.get(f"/api/traces/{trace.pk}").json()["has_clock"]
    layer = trace.layers.get()
    layer.facts |= {"begin": 5, "end": 10**9}
    layer.save()

    assert not client.get(f"/api/traces/{trace.pk}").json()["has_clock"]
