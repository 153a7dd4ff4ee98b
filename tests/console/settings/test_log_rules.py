"""Rules for lines of logs: added, changed and removed by page and API, and shown above the log that has such lines."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import Project
from tests.jobs.diagnosis.test_log_findings import DEAD_RANK, logged
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project, role="admin"))
    return client


def test_a_rule_is_added_changed_and_removed_on_the_page(admin: Client, project: Project) -> None:
    page, change = (reverse(name, args=[project.slug]) for name in ("log-rules", "change-log-rules"))
    rule = {"pattern": "eager it is", "label": "No flash", "remedy": "Install it.", "level": "warning"}

    admin.post(change, rule)
    refused = admin.post(change, {**rule, "pattern": "eager ["})
    assert refused.status_code == 422
    assert "is no regular expression" in refused.content.decode()
    assert 'value="eager ["' in refused.content.decode()

    run = logged(make_run(project, state="failed"), DEAD_RANK, ended=NOW)
    shown = admin.get(reverse("run-log-findings", args=[run.pk])).content.decode()
    assert "No flash" in shown
    assert "Install it." in shown
    assert "data-first-error" in shown

    assert 'value="Install it."' in admin.get(page, {"pattern": "eager it is"}).content.decode()
    admin.post(change, {**rule, "before": "eager it is", "label": "Eager"})
    project.refresh_from_db()
    assert project.log_rules == [{**rule, "label": "Eager"}]
    admin.post(change, {"before": "eager it is", "remove": "1"})
    project.refresh_from_db()
    assert project.log_rules == []


def test_by_the_api_rules_are_set_and_findings_are_read(admin: Client, project: Project) -> None:
    address = f"/api/projects/{project.slug}/log-rules"
    rule = {"pattern": "eager it is", "label": "No flash", "remedy": "", "level": "error"}
    refused = admin.put(address, {"rules": [{**rule, "level": "bad"}]}, content_type="application/json")
    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, "rules.level")

    assert admin.put(address, {"rules": [rule]}, content_type="application/json").json() == {"rules": [rule]}
    assert admin.get(address).json() == {"rules": [rule]}
    run = logged(make_run(project, state="failed"), DEAD_RANK, ended=NOW + timedelta(seconds=3100))
    found = admin.get(f"/api/runs/{run.pk}/log-findings").json()
    assert found["first_error"]["line"]["rank"] == 3
    assert found["kinds"][0]["count"] == 1
    assert "No flash" in {kind["label"] for kind in found["kinds"]}
    asked = admin.get(f"/api/runs/{run.pk}/logs", {"q": "eager [", "is_expression": "true"})
    assert (asked.status_code, asked.json()["problems"][0]["field"]) == (422, "q")
