"""Specs of before there were layouts keep the one that they ran in."""

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from jobs.models import Run
from tests.rows import make_run

migration = import_module("jobs.migrations.0003_layout")


@pytest.mark.django_db
def test_a_stored_spec_without_a_layout_is_one_of_split_roles() -> None:
    former, present = make_run(), make_run()
    stored: dict[str, Any] = {**former.spec, "hardware": {"policy_ranks": 1}}
    Run.objects.filter(pk=former.pk).update(spec=stored)

    for _ in range(2):
        migration.name_layout(apps, connection.schema_editor())

    former.refresh_from_db()
    assert former.spec == {**stored, "hardware": {"policy_ranks": 1, "layout": "split"}}
    assert Run.objects.get(pk=present.pk).spec["hardware"]["layout"] == "colocated"
