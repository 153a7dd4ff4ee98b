"""The cluster page: whether Ray answers, nodes, holders, queue, orphan processes; and what it keeps to itself."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.cluster.ray_api import forget_state
from jobs.models import Attempt, Project
from tests.jobs.fake_ray import TOKEN, FakeRay, serve
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def ray(settings: Any) -> Iterator[FakeRay]:
    with serve() as running:
        settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN = running.address, TOKEN
        forget_state()
        yield running


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def viewer(client: Client, project: Project) -> Client:
    client.force_login(make_user(project=project, role="viewer"), backend="django.contrib.auth.backends.ModelBackend")
    return client


def page(client: Client) -> str:
    return client.get(reverse("cluster")).content.decode()


def test_an_unreachable_ray_is_said_with_what_still_works(viewer: Client) -> None:
    shown = page(viewer)

    assert "Ray does not answer" in shown
    assert "No answer for" in shown
    assert "what is already training continues" in shown


def test_nodes_holders_and_the_queue_with_its_reasons(viewer: Client, project: Project, ray: FakeRay) -> None:
    holder = make_run(project, spec={"name": "holder"}, state="running", now=timezone.now())
    Attempt.objects.filter(run=holder).update(last_contact_at=timezone.now())
    make_run(project, spec={"name": "patient"}, wait_reason="Behind holder")

    shown = page(viewer)

    assert "Ray answers" in shown
    assert "holder" in shown
    assert "Behind holder" in shown
    assert "127.0.0.1" in shown


def test_runs_of_other_projects_show_what_they_hold_but_not_what_they_are(viewer: Client, ray: FakeRay) -> None:
    make_run(make_project(), spec={"name": "secret"}, state="running", now=timezone.now())

    shown = page(viewer)

    assert "A run of another project" in shown
    assert "secret" not in shown


def test_orphans_are_counted_or_said_to_be_unchecked(viewer: Client, project: Project) -> None:
    ago = timezone.now() - timedelta(minutes=10)
    for name, cleanup in (("clean", {"processes_left": 0}), ("dirty", {"processes_left": 2}), ("unknown", {})):
        run = make_run(project, spec={"name": name}, state="failed", now=ago)
        Attempt.objects.filter(run=run).update(cleanup=cleanup)

    shown = page(viewer)

    assert "2 processes" in shown
    assert "Not checked yet" in shown
    assert ">clean<" not in shown


def test_nothing_left_is_said_only_when_it_is_proved(viewer: Client, project: Project) -> None:
    run = make_run(project, spec={"name": "done"}, state="finished", now=timezone.now())
    Attempt.objects.filter(run=run).update(cleanup={"processes_left": 0, "device_bytes_left": 0})

    assert "has confirmed that none of its processes are left" in page(viewer)


def test_nodes_that_could_not_be_asked_are_named(viewer: Client, project: Project) -> None:
    run = make_run(project, spec={"name": "half proved"}, state="failed", now=timezone.now())
    proof = {"processes_left": 0, "nodes": ["head"], "nodes_unchecked": ["blue (10.0.0.2)"]}
    Attempt.objects.filter(run=run).update(cleanup=proof)

    shown = page(viewer)

    assert "half proved" in shown
    assert "Not checked on blue (10.0.0.2)" in shown
