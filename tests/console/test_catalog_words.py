"""What the catalogue says reaches makemessages, and pages in the reader's language."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from console import catalog_words
from jobs.catalog.knob import knobs
from jobs.catalog.metric import metrics
from tests.rows import make_project, make_run, make_user


def test_the_texts_for_makemessages_are_those_of_the_catalogue() -> None:
    written = catalog_words.MODULE.read_text(encoding="utf-8")

    assert written == catalog_words.module_text(), "run: make messages"


def test_every_metric_and_every_knob_of_the_built_in_trainer_has_chinese_words() -> None:
    ours = [knob for knob in knobs().values() if "native" in knob.trainers]
    with translation.override("zh-hans"):
        knob_words = {knob.label: catalog_words.knob_label(knob.id) for knob in ours}
        metric_words = {m.definition: catalog_words.metric_words()[m.name]["definition"] for m in metrics().values()}
        allowed = catalog_words.knob_allowed(knobs()["train.num_steps"])

    same = [english for english, chinese in {**knob_words, **metric_words}.items() if english == chinese]
    assert same == ["Adam beta 2"]
    assert "whole number" not in allowed


def test_what_a_knob_takes_reads_as_the_catalogue_says_it() -> None:
    for knob in knobs().values():
        if knob.type != "bool":
            assert catalog_words.knob_allowed(knob) == knob.allowed()


@pytest.mark.django_db
def test_the_run_page_names_knobs_and_phases_in_chinese(client: Client) -> None:
    project = make_project()
    run = make_run(project, spec={"name": "r"})
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "zh-hans"

    page = client.get(reverse("run", args=[run.pk])).content.decode()

    assert "KL 系数" in page
    assert "权重同步" in page
    assert "Weight sync" not in page
