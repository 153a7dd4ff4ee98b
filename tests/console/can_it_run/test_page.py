"""Can it run? Any model, hardware and method: the answer, the fewest devices, and what was published beside it."""

import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from console.forms.new_run.form import default_spec, form_to_raw, spec_to_form
from jobs.catalog.accelerator import accelerators
from jobs.catalog.model import models
from jobs.catalog.spec.parse import parse_spec
from jobs.models import Project
from jobs.planner.can_it_run.language_models import can_it_run
from jobs.planner.can_it_run.plans import METHODS
from jobs.planner.read.context import Models
from jobs.planner.read.spec import read_job
from jobs.planner.shapes.known import shape_of
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db

ADDRESS = "/guide/devices"


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def signed_in(project: Project, role: str = "editor") -> Client:
    client = Client()
    client.force_login(make_user(project=project, role=role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def editor(project: Project) -> Client:
    return signed_in(project)


def text(client: Client, **query: Any) -> str:
    answer = client.get(ADDRESS, query)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of each accelerator's row, without tags."""
    found = {}
    for name, row in re.findall(r'<tr id="on-([\w.-]+)"[^>]*>(.*?)</tr>', page, re.DOTALL):
        cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
        found[name] = [re.sub(r"<title>.*?</title>|<[^>]+>", "", cell).strip() for cell in cells]
    return found


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_an_answer_with_the_planners_own_numbers(editor: Client, method: str) -> None:
    found = rows(text(editor, model="qwen2.5-7b", method=method, on=["h100-sxm", "rtx-4090"]))

    assert set(found) == {"h100-sxm", "rtx-4090"}
    for name, cells in found.items():
        expected = can_it_run(shape_of("qwen2.5-7b"), accelerators()[name], method)
        assert cells[1] == expected.answer
        for cell, need in ((cells[2], expected.practical), (cells[3], expected.fewest_at_all)):
            assert need is not None
            assert cell.split()[-1] == str(need.num_devices)
            assert cell.startswith("tight") == need.is_tight


def test_the_headline_is_practical_and_says_what_it_takes(editor: Client) -> None:
    page = text(editor, model="qwen3-30b-a3b", method="grpo", on="h200-sxm")
    patient = text(editor, model="qwen3-30b-a3b", method="grpo", on="h200-sxm", within="48", host_gb="2,000")
    one = text(editor, model="qwen3-30b-a3b", method="grpo", on="h200-sxm", devices="1")

    assert re.search(r"GRPO, all weights: from 4 × H200[^<]* on, [\d.]+–[\d.]+ min a step\.", page)
    for word in ("of host RAM a node", "of disk for a checkpoint", "It is tight: it takes 86 % of a device's memory"):
        assert word in page
    assert re.search(r"Possible with offload from 1 device on, \d+–\d+ h a step\.", page)
    assert re.search(r"GRPO, all weights: from 1 × H200", patient)
    assert "possible on 1 × H200" in one
    assert rows(one)["h200-sxm"][1] == "possible"


def test_the_headline_speaks_of_the_row_that_is_shown(editor: Client) -> None:
    asked = {"model": "llama-3.1-70b", "method": "sft", "on": ["rtx-4090", "h200-sxm"], "devices": "8", "within": "0.1"}
    best = text(editor, **asked)
    chosen = text(editor, **asked, show="rtx-4090")
    small = text(editor, **asked, show="rtx-4090", host_gb="64")

    def lines(page: str) -> tuple[str, str]:
        headline, detail = (re.search(each, page) for each in (r"SFT, all weights: [^<]*", r'id="detail-title">[^<]*'))
        assert headline is not None
        assert detail is not None
        return headline[0], detail[0]

    for page, label, said in (
        (best, "H200", "on 8 ×"),
        (chosen, "RTX 4090", "possible on 8 ×"),
        (small, "RTX 4090", "it does not fit on"),
    ):
        headline, detail = lines(page)
        assert f"SFT, all weights: {said} " in headline
        assert label in headline
        assert label in detail
        assert page == small or "It runs on 1 of these 2 accelerators." in headline


def test_the_details_name_needs_layout_phase_and_published_rows(editor: Client) -> None:
    page = text(editor, model="Qwen/Qwen2.5-7B", method="grpo", on="h100-sxm")

    assert "7,615,616,512" in page
    assert "Everything on the GPUs" in page
    assert "Optimizer and its step in host memory" in page
    assert "supports it" in page
    assert "What was published" in page
    assert "data-binding" in page
    assert "No costs: the project has no prices" in page


def test_a_way_of_which_another_layout_is_quicker_on_as_many_gpus_is_listed_once(editor: Client) -> None:
    answer = can_it_run(shape_of("qwen3-235b-a22b"), accelerators()["h100-sxm"], "sft")
    page = text(editor, model="qwen3-235b-a22b", method="sft", on=["a100-80-sxm", "h100-sxm"])

    slow, best = answer.need("always"), answer.practical
    assert best is not None
    assert (best.on_host, best.num_devices) == (slow.on_host, slow.num_devices)
    assert slow is not best
    assert len(re.findall(r'<th scope="row">\s*<b>Optimizer and its step in host memory</b>', page)) == 1
    assert len(re.findall(r'<th scope="row">\s*Optimizer and its step in host memory', page)) == 0


def test_figures_of_memory_have_their_groups(editor: Client) -> None:
    page = text(editor, model="qwen3-235b-a22b", method="grpo", on="h200-sxm")

    assert re.search(r">\s*\d,\d{3}\.\d\s*<", page)
    assert not re.search(r">\s*\d{4,}\.\d\s*<", page)


def test_the_built_in_trainers_layouts_say_which_is_needed_on_how_many_gpus(editor: Client) -> None:
    page = text(editor, model="qwen2.5-1.5b", method="grpo", on="h100-sxm")
    _, _, own = page.partition('id="own-title"')
    lines = [re.sub(r"<[^>]+>", " ", row) for row in re.findall(r"<tr>(.*?)</tr>", own, re.DOTALL)[1:10]]

    places = [tuple(line.split()[:2]) for line in lines]
    assert places == [(n, layout) for n in "128" for layout in ("Split", "Shared", "Colocated")]
    assert "takes 3 at least" in lines[0]
    assert "fits" in lines[2]
    assert "own-title" not in text(editor, model="qwen2.5-1.5b", method="sft", on="h100-sxm")


def test_a_number_of_gpus_is_judged_by_itself(editor: Client) -> None:
    few, enough = (text(editor, model="llama-3.1-70b", method="grpo", on="a100-80-sxm", devices=n) for n in (1, 64))

    assert "fits on none of these" in few
    assert "No layout fits on 1. It takes " in few
    assert "Plan a run with this" not in few
    assert rows(enough)["a100-80-sxm"][1] == "yes"
    assert "64 ×" in rows(enough)["a100-80-sxm"][4]


def test_costs_are_there_where_the_project_has_prices(editor: Client, project: Project) -> None:
    project.currency, project.prices = "EUR", {"h100-sxm": {"price": 2.5, "on": "2026-11-20"}}
    project.save()
    found = rows(text(editor, model="qwen2.5-7b", method="grpo", on=["h100-sxm", "rtx-4090"]))

    assert found["h100-sxm"][9].endswith("EUR")
    assert found["rtx-4090"][9] == "—"


def test_a_pasted_config_is_estimated_and_stays_in_the_address(editor: Client) -> None:
    config = json.dumps(dict(models()["qwen3-0.6b"].config), indent=4)
    page = text(editor, config=config, method="sft", on="l4")
    shown = re.search(r'href="(/guide/devices\?[^"]*show=l4)#detail"', page)

    assert "596,049,920" in page
    assert shown is not None
    kept = parse_qs(urlsplit(shown[1]).query)
    assert json.loads(kept["config"][0]) == json.loads(config)
    assert "\n" not in kept["config"][0]
    assert "596,049,920" in text(editor, **kept)
    part = editor.get(ADDRESS, {"config": config, "on": "l4"}, headers={"HX-Target": "guide-body"})
    assert "\n" not in parse_qs(urlsplit(part["HX-Replace-Url"]).query)["config"][0]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"model": "nobody/knows-it"}, "Paste its config.json to get an estimate."),
        ({"config": "{"}, "This is not JSON"),
        ({"config": '{"model_type": "qwen2", // of the hub\n}'}, "JSON has no comments, and no comma before a closing"),
        ({"config": "[1]"}, "A config.json is a JSON object"),
        ({"config": '{"model_type": "qwen2", "hidden_size": null}'}, "hidden_size"),
        ({"config": "kept:0123456789abcdef01234567"}, "is not kept here"),
        ({"config": "[" * 100_000}, "This is not JSON"),
        ({"model": "qwen2.5-7b", "method": "grop"}, "'grop' is not a known method. Use one of sft"),
        ({"model": "qwen2.5-7b", "on": "h2000"}, "'h2000' is not a known accelerator"),
        ({"model": "qwen2.5-7b", "on": list(accelerators())[:9]}, "Choose up to 8"),
        ({"model": "qwen2.5-7b", "devices": "0"}, "'0' is not allowed for “Number of GPUs”. Use a whole"),
        ({"model": "qwen2.5-7b", "within": "soon"}, "'soon' is not allowed for “A step within, hours”"),
        ({"model": "qwen2.5-7b", "within": "nan"}, "'nan' is not allowed for “A step within, hours”"),
        ({"model": "qwen2.5-7b", "host_gb": "-1"}, "'-1' is not allowed for “Host RAM of a node, GB”"),
        ({"model": "qwen2.5-7b", "prompt": "1e9"}, "'1e9' is not allowed for “Longest prompt, tokens”"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(editor: Client, query: dict[str, Any], sentence: str) -> None:
    page = text(editor, **query)

    assert sentence in page
    assert 'class="field-error"' in page


@pytest.mark.parametrize("devices", ["1", ""])
def test_a_yes_that_is_tight_says_so(editor: Client, devices: str) -> None:
    """7B with adapters takes 93 % of an RTX 4090."""
    page = text(editor, model="qwen2.5-7b", method="sft-lora", on="rtx-4090", devices=devices)

    assert "It is tight: it takes 93 % of a device's memory, known to ± " in page
    assert ">tight</span>" in page


def test_a_number_that_is_none_stays_in_its_box_and_in_the_address(editor: Client) -> None:
    wrong = {"model": "qwen2.5-7b", "devices": "four", "prompt": "-1", "response": '"><b>'}

    page = editor.get(ADDRESS, wrong)
    part = editor.get(ADDRESS, wrong, headers={"HX-Target": "guide-body"})

    for name, value in (("devices", "four"), ("prompt", "-1"), ("response", "&quot;&gt;&lt;b&gt;")):
        assert re.search(rf'name="{name}" value="{re.escape(value)}"[^>]* aria-invalid="true"', page.content.decode())
    kept = parse_qs(urlsplit(part["HX-Replace-Url"]).query)
    assert {name: texts[0] for name, texts in kept.items() if name in wrong} == wrong


def test_nothing_asked_shows_how_to_ask_and_what_was_published(editor: Client) -> None:
    page = text(editor)
    examples = [unescape(found) for found in re.findall(r'<li><a href="(/guide/devices\?[^"]+)"', page)]

    assert "Name a model" in page
    assert "Published configurations" in page
    assert len(examples) == 5
    for example in examples:
        answer = editor.get(example).content.decode()
        assert "Hardware side by side" in answer
        assert "field-error" not in answer


def test_the_way_to_a_run_is_for_those_who_may_launch_and_fills_the_form(editor: Client, project: Project) -> None:
    query = {"model": "qwen2.5-7b", "method": "grpo-lora", "on": "h100-sxm", "devices": "8", "prompt": "512"}
    page = text(editor, **query)
    address = re.search(r'href="(/runs/new\?[^"]+)"', page)

    assert "/runs/new?" not in text(signed_in(project, "viewer"), **query).split("<main")[1]
    assert address is not None
    asked = parse_qs(urlsplit(address[1]).query)
    assert (asked["algorithm"], asked["accelerator"], asked["devices_per_node"]) == (["grpo"], ["h100-sxm"], ["8"])
    form = unescape(editor.get(address[1]).content.decode())
    assert 'value="Qwen/Qwen2.5-7B"' in form
    assert "This run has no knob" not in form
    for knob, value in (("rollout.max_prompt_tokens", "512"), ("lora.rank", "32")):
        assert f"{knob}={value}" in asked["set"]
        assert re.search(rf'name="knobs\.{re.escape(knob)}"[^>]*value="{value}"', form), knob


@pytest.mark.parametrize(
    ("model", "method", "on", "devices"),
    [
        ("qwen2.5-7b", "grpo", "h100-sxm", 8),
        ("qwen2.5-7b", "grpo", "h100-sxm", 1),  # the optimizer steps on the host
        ("qwen2.5-7b", "ppo", "a100-80-sxm", 8),
        ("llama-3.1-70b", "sft", "a100-80-sxm", 64),
        ("llama-3.1-8b", "sft-lora", "rtx-4090", 1),
        ("llama-3.1-8b", "dpo", "h100-sxm", 8),
        ("qwen3-235b-a22b", "grpo", "h200-sxm", 128),
    ],
)
def test_the_way_to_a_run_carries_the_layout_that_was_shown(
    editor: Client, model: str, method: str, on: str, devices: int
) -> None:
    page = text(editor, model=model, method=method, on=on, devices=devices)
    address = re.search(r'href="(/runs/new\?[^"]+)"', page)
    assert address is not None
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address[1]).query).items()}
    knobs = dict(each.split("=", 1) for each in parse_qs(urlsplit(address[1]).query)["set"])
    name = knobs.pop("model.id")
    trainer = {"name": asked["trainer"], "version": asked["version"]}
    base = default_spec(asked["algorithm"], trainer["name"], trainer["version"])
    typed = form_to_raw({**spec_to_form(base), **{f"knobs.{knob}": value for knob, value in knobs.items()}}, base)
    spec = parse_spec({**typed, "model": {"kind": "hub", "id": name}})
    shown = can_it_run(shape_of(model), accelerators()[on], method, devices).at
    assert shown is not None
    assert shown.job is not None
    wanted = shown.job.policy

    job = read_job(spec, Models(policy=shape_of(model)), shown.job.fleet)

    ours = job.policy
    assert ours.layout.num_devices == wanted.layout.num_devices == devices
    is_same_family = asked["trainer"] == "verl" or wanted.family == "deepspeed"  # the others shard by DeepSpeed alone
    assert (ours.family == wanted.family) == is_same_family
    assert (ours.method, ours.lora_rank) == (wanted.method, wanted.lora_rank)
    for size in ("tensor", "pipeline", "expert", "shards", "last_stage_layers"):
        assert getattr(ours.layout, size) == getattr(wanted.layout, size), size
    assert (ours.micro_batch, ours.sequence) == (wanted.micro_batch, wanted.sequence)
    assert (ours.compute, ours.checkpointing) == (wanted.compute, wanted.checkpointing)
    assert ours.offload.optimizer == wanted.offload.optimizer
    if asked["trainer"] == "verl":
        assert ours.offload == wanted.offload
    if shown.job.engine is not None:
        assert job.engine is not None
        for size in ("num_engines", "tensor", "utilization"):
            assert getattr(job.engine, size) == getattr(shown.job.engine, size), size
    form = unescape(editor.get(address[1]).content.decode())
    assert "This run has no knob" not in form


def test_a_long_config_is_kept_by_a_name_and_goes_on_to_a_run(editor: Client, project: Project) -> None:
    config = {**models()["qwen3-0.6b"].config, "notes": "y" * 40_000}
    kept = editor.post(f"{ADDRESS}/config", {"config": json.dumps(config)}).json()["config"]
    page = text(editor, config=kept, method="sft", on="h100-sxm")
    address = re.search(r'href="(/runs/new\?[^"]+)"', page)

    assert kept.startswith("kept:")
    assert "596,049,920" in page
    assert address is not None
    assert len(address[1]) < 3000
    form = unescape(editor.get(address[1]).content.decode())
    assert "y" * 40_000 in form
    assert "uses the pasted config.json" in form
    assert "is not kept here" in text(signed_in(project), config=kept)
    large = editor.post(f"{ADDRESS}/config", {"config": "y" * (1 << 20) + "y"})
    assert (large.status_code, large.json()["config"]) == (422, "")


def test_a_link_does_not_put_a_strangers_repository_into_the_form(editor: Client) -> None:
    form = unescape(editor.get(reverse("new-run"), {"set": "model.id=stranger/code"}).content.decode())

    assert "'stranger/code' is not a known model" in form
    assert 'value="stranger/code"' not in form


def test_what_is_typed_is_not_looked_for_until_an_editor_says_so(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def found(model: Any, **_: Any) -> Any:
        read.append(model.id)
        return dict(models()["qwen3-8b"].config)

    monkeypatch.setattr("jobs.preflight.preview.read_config", found)
    page = text(editor, model="somebody/tuned", method="sft", on="l4")
    address = re.search(r'href="(/guide/devices\?[^"]*read=1[^"]*)"', page)

    assert "somebody/tuned is not known here." in page
    assert read == []
    assert address is not None
    assert "8,190,735,360" in unescape(editor.get(address[1]).content.decode())
    assert read == ["somebody/tuned"]
    viewer = signed_in(project, "viewer")
    assert "read=1" not in text(viewer, model="somebody/tuned").split("<main")[1]
    assert "8,190,735,360" not in text(viewer, model="somebody/tuned", read="1")
    assert read == ["somebody/tuned"]


def test_no_folder_is_read_for_a_viewer(project: Project, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(model: Any, **_: Any) -> Any:
        raise AssertionError(model)

    monkeypatch.setattr("jobs.preflight.preview.read_config", never)

    assert "not read for viewers" in text(signed_in(project, "viewer"), model=str(tmp_path), read="1")
