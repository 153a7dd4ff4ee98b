"""The tab Traces of the page Compare leads to what two captures do differently."""

import html

import pytest
from django.test import Client

from jobs.models import Capture
from tests.console.made_traces import imported
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


def test_a_capture_leads_to_its_difference_from_that_of_the_baseline(client: Client) -> None:
    project = make_project()
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    runs = [make_run(project, spec={"name": name}) for name in ("a", "b")]
    captures = [
        Capture.objects.create(run=run, attempt=1, tool="torch", first_step=4, num_steps=3, state="ready")
        for run in runs
    ]

    def tab() -> str:
        answer = client.get(f"/compare?runs={runs[0].pk},{runs[1].pk}&tab=traces")
        return html.unescape(answer.content.decode())

    base = imported(project, file=None, capture=captures[0])
    assert "What differs" not in tab()  # the other one is not imported yet
    other = imported(project, file=None, capture=captures[1], slow=50)
    shown = tab()
    address = f"/traces/{base.pk}/difference?other={other.pk}"
    assert shown.count("What differs") == 1
    assert f'href="{address}"' in shown
    assert all(f'href="/traces/{trace.pk}/summary"' in shown for trace in (base, other))
    assert all(f'href="/traces/{trace.pk}" ' in shown for trace in (base, other))
    (row,) = client.get(f"/api/compare?runs={runs[0].pk},{runs[1].pk}").json()["captures"]
    (first,), (second,) = (row["runs"][run.pk] for run in runs)
    assert (first["summary_url"], first["difference_url"]) == (f"/traces/{base.pk}/summary", None)
    assert (second["trace_url"], second["difference_url"]) == (f"/traces/{other.pk}", address)
    assert "A step takes 150 µs instead of 100 µs" in client.get(address).content.decode()
