"""Imports take turns between projects, and give way to who waits."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Layer, Project
from jobs.storage import quotas
from jobs.traces import imports, turns
from tests.rows import make_project
from tests.trace_rows import make_trace, torch_file

pytestmark = pytest.mark.django_db


def waiting(project: Project, *, seconds: float) -> Layer:
    layer = make_trace(project).layers.select_related("trace").get()
    layer.state, layer.created_at = "queued", timezone.now() - timedelta(seconds=seconds)
    layer.save()
    return layer


def importing(project: Project, *, seconds: float, **values: Any) -> Layer:
    layer = waiting(project, seconds=seconds)
    layer.state, layer.seen_at, layer.claim = "importing", timezone.now(), f"c{layer.pk}"
    layer.tries = 1
    layer.save()
    return layer


def sent() -> list[int]:
    return turns.next_layers(queued_before=timezone.now() - timedelta(seconds=5))


def test_who_floods_the_queue_gets_one_place_while_another_waits() -> None:
    flood, other = make_project(), make_project()
    mine = [waiting(flood, seconds=100 - i) for i in range(5)]
    late = waiting(other, seconds=6)

    assert sent() == [mine[0].pk, late.pk]
    assert turns.is_its_turn(mine[0])
    Layer.objects.filter(pk=mine[0].pk).update(state="importing", seen_at=timezone.now())
    assert not turns.is_its_turn(mine[1])
    assert turns.is_its_turn(late)


def test_a_project_alone_uses_every_place() -> None:
    project = make_project()
    layers = [waiting(project, seconds=100 - i) for i in range(3)]

    assert sent() == [layers[0].pk, layers[1].pk]
    Layer.objects.filter(pk=layers[0].pk).update(state="importing", seen_at=timezone.now())
    assert turns.is_its_turn(layers[1])
    Layer.objects.filter(pk=layers[1].pk).update(state="importing", seen_at=timezone.now())
    assert not turns.is_its_turn(layers[2])
    assert sent() == []


def test_the_younger_of_two_imports_gives_way_and_waits_again_where_it_stood() -> None:
    flood, other = make_project(), make_project()
    older, younger = importing(flood, seconds=100), importing(flood, seconds=90)
    now = timezone.now()
    assert not turns.gives_way(younger, now=now)
    late = waiting(other, seconds=6)

    assert not turns.gives_way(older, now=now)
    assert not turns.gives_way(younger, now=now - timedelta(seconds=2))
    assert turns.gives_way(younger, now=now)

    younger.refresh_from_db()
    assert (younger.state, younger.claim, younger.tries) == ("queued", "", 0)
    assert sent() == [late.pk]
    assert not imports._beat(younger, 0.5)
    imports._end(younger, {}, "", made=imports.store_path(younger))
    younger.refresh_from_db()
    assert younger.state == "queued"


def test_an_import_that_gives_way_ends_its_process_and_leaves_nothing(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FILES_DIR = tmp_path
    layer = waiting(make_project(), seconds=10)
    imports.source_path(layer).parent.mkdir(parents=True, exist_ok=True)
    imports.source_path(layer).write_bytes(torch_file())

    def give_way(taken: Layer, **_: Any) -> bool:
        return bool(Layer.objects.filter(pk=taken.pk, claim=taken.claim).update(state="queued", claim=""))

    monkeypatch.setattr(turns, "gives_way", give_way)
    imports.import_layer(layer_id=layer.pk)

    layer.refresh_from_db()
    assert (layer.state, layer.problem) == ("queued", "")
    assert not list(imports.trace_folder(layer.trace).glob(".import-*"))


def test_one_import_of_each_of_two_projects_gives_way_to_nobody() -> None:
    layers = [importing(make_project(), seconds=100) for _ in range(2)]
    waiting(make_project(), seconds=50)

    assert not any(turns.gives_way(layer, now=timezone.now()) for layer in layers)


def test_a_quota_of_imports_holds_however_many_places_are_free() -> None:
    project, other = make_project(), make_project()
    quotas.set_quota(project, values={"imports": 1}, actor=None)
    importing(project, seconds=100)
    layer = waiting(project, seconds=50)
    assert sent() == []
    assert not turns.is_its_turn(layer)

    late = waiting(other, seconds=6)

    assert sent() == [late.pk]
