"""Bookmarks of a trace: kept beside its stores, seen by all of the project, taken away by those who may edit."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.models import Trace
from jobs.traces.bookmarks import bookmarks
from jobs.traces.uploads import delete_trace
from tests.rows import make_project, make_user
from tests.trace_rows import make_trace

pytestmark = pytest.mark.django_db

HERE = {"text": "  the slow\nstep ", "begin": "2000", "end": "3000"}


@pytest.fixture
def trace(tmp_path: Path, settings: Any) -> Trace:
    settings.FILES_DIR = tmp_path
    return make_trace(make_project())


@pytest.fixture
def editor(trace: Trace, client: Client) -> Client:
    client.force_login(make_user("ada", project=trace.project, role="editor"))
    return client


def keep(client: Client, trace: Trace, **values: str) -> Any:
    return client.post(f"/api/traces/{trace.pk}/bookmarks", {**HERE, **values}, content_type="application/json")


def test_what_is_noted_is_kept_in_the_order_of_time_and_goes_with_the_trace(editor: Client, trace: Trace) -> None:
    assert keep(editor, trace).status_code == 201
    assert keep(editor, trace, text="before it", begin="1000").status_code == 201

    kept = editor.get(f"/api/traces/{trace.pk}/bookmarks").json()["bookmarks"]

    assert [(one["text"], one["begin"], one["end"], one["by"]) for one in kept] == [
        ("before it", "1000", "3000", "ada"),
        ("the slow step", "2000", "3000", "ada"),
    ]
    for _ in range(2):  # the second time there is nothing to take away
        assert editor.delete(f"/api/traces/{trace.pk}/bookmarks/{kept[0]['number']}").status_code == 204
    assert [one.text for one in bookmarks(trace)] == ["the slow step"]
    gone = Trace(pk=trace.pk, run_id=trace.run_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.traces.uploads.transaction.on_commit", lambda act: act())
        delete_trace(trace=trace, user=None)
    assert bookmarks(gone) == []


@pytest.mark.parametrize(
    ("values", "field"),
    [({"text": " "}, "text"), ({"text": "x" * 501}, "text"), ({"end": "2000"}, "end"), ({"end": "9" * 20}, "end")],
)
def test_what_is_no_bookmark_is_refused(values: dict[str, str], field: str, editor: Client, trace: Trace) -> None:
    answer = keep(editor, trace, **values)

    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field
    assert bookmarks(trace) == []


def test_a_trace_has_no_more_than_so_many(editor: Client, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.traces.bookmarks.MOST_BOOKMARKS", 1)
    keep(editor, trace)

    answer = keep(editor, trace)

    assert answer.status_code == 422
    assert "at most 1 bookmarks" in answer.json()["problems"][0]["message"]
