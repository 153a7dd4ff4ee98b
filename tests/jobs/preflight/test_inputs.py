"""Which paths of a spec are read for whom."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from jobs.catalog.spec.parse import parse_spec
from jobs.models import Project
from jobs.preflight import preview
from jobs.preflight.client import PathNotAllowed, TrialFailed
from jobs.preflight.inputs import allowance_for, hub_cache, uploads_dir
from tests.rows import make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    settings.DATA_ROOTS = [folder]
    return folder


def reads(project: Project, op: str = "preview", **spec: Any) -> tuple[Path, ...]:
    return allowance_for(op, parse_spec(spec), project=project).read


def data(path: Path, **more: Any) -> dict[str, Any]:
    return {"kind": "path", "id": str(path), **more}


def refused(project: Project, op: str = "preview", **spec: Any) -> PathNotAllowed:
    with pytest.raises(PathNotAllowed) as caught:
        reads(project, op, **spec)
    return caught.value


def test_a_file_below_a_root_is_read_and_a_second_split_beside_it(project: Project, root: Path) -> None:
    (root / "a.jsonl").touch()
    (root / "b.jsonl").touch()

    assert reads(project, data=data(root / "a.jsonl", eval_split="b.jsonl")) == (root / "a.jsonl", root / "b.jsonl")


@pytest.mark.parametrize("split", [".", "..", "folder.jsonl", "folder.jsonl/."])
def test_data_are_files_so_that_no_folder_is_opened_for_what_else_it_holds(
    project: Project, root: Path, split: str
) -> None:
    (root / "folder.jsonl" / ".ssh").mkdir(parents=True)
    (root / "folder.jsonl" / "a.jsonl").touch()
    (root / "a.jsonl").touch()
    file = root / ("folder.jsonl/a.jsonl" if split == ".." else "a.jsonl")

    assert reads(project, "reward", data=data(file, eval_split=split)) == (file,)
    assert reads(project, "reward", data=data(root / "folder.jsonl")) == ()


@pytest.mark.parametrize("place", ["data/secret.json", "data/files/uploads/x.jsonl", "outside/a.jsonl"])
def test_what_is_outside_of_the_roots_or_the_console_s_own_is_not_read(
    project: Project, root: Path, settings: Any, place: str
) -> None:
    settings.DATA_DIR = root / "data"
    file = (root if place.startswith("data") else root.parent) / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    (root / "link.jsonl").symlink_to(file)

    for path in (file, root / "link.jsonl", root / "x" / ".." / ".." / file.relative_to(root.parent)):
        failed = refused(project, data=data(path))
        assert failed.field == "data.id"
        assert str(path) in failed.message
        assert "PITWALL_DATA_ROOTS" in failed.message
    assert refused(project, data=data(root / "a.jsonl", eval_split=str(file))).field == "data.eval_split"


def test_a_folder_that_holds_the_data_directory_is_no_model(project: Project, settings: Any) -> None:
    settings.DATA_ROOTS = [Path("/")]

    failed = refused(project, "config", model={"kind": "path", "id": str(settings.DATA_DIR.parent)})

    assert failed.field == "model.id"


def test_hidden_folders_are_not_read_unless_a_root_names_them(project: Project, root: Path, settings: Any) -> None:
    hidden = root / ".cloud"
    hidden.mkdir()
    (hidden / "keys.json").touch()

    assert refused(project, data=data(hidden / "keys.json")).field == "data.id"
    settings.DATA_ROOTS = [hidden]
    assert reads(project, data=data(hidden / "keys.json")) == (hidden / "keys.json",)


def test_links_in_a_model_s_folder_are_followed_as_far_as_they_may_be(project: Project, root: Path) -> None:
    model, blobs = root / "model", root / "blobs"
    model.mkdir()
    blobs.mkdir()
    (blobs / "1").touch()
    (model / "config.json").symlink_to(blobs / "1")
    (model / "tokenizer.json").symlink_to(django_settings.DATA_DIR / "secret_key")

    assert reads(project, "config", model={"kind": "path", "id": str(model)}) == (model, blobs / "1")


def test_models_of_runs_are_read_for_their_own_project(project: Project, root: Path, settings: Any) -> None:
    run = make_run(project=project)
    folder = Path(settings.RUN_ROOT) / run.pk / "model"
    folder.mkdir(parents=True)
    model = {"kind": "path", "id": str(folder)}

    assert folder in reads(project, "config", model=model)
    assert refused(make_project(), "config", model=model).field == "model.id"
    assert refused(project, "config", model=model | {"id": str(settings.RUN_ROOT)}).field == "model.id"


def test_with_ray_elsewhere_no_path_says_whether_it_is_there(project: Project, tmp_path: Path, settings: Any) -> None:
    settings.RAY_ADDRESS = "https://ray.example:8265"
    settings.DATA_ROOTS = []

    there = tmp_path / "there.jsonl"
    there.touch()
    places = (there, tmp_path / "not.jsonl")
    messages = {refused(project, data=data(place)).message.replace(str(place), "") for place in places}

    assert len(messages) == 1


def test_an_upload_is_one_file(project: Project, root: Path) -> None:
    sha = "a" * 64

    assert reads(project, data={"kind": "upload", "id": f"upload:{sha}"}) == (uploads_dir() / sha,)


@pytest.mark.usefixtures("root")
def test_the_network_is_for_what_runs_nobody_s_code(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    spec = parse_spec({"data": {"kind": "hub", "id": "a/b"}, "model": {"kind": "hub", "id": "c/d"}})

    preview, reward = (allowance_for(op, spec, project=project) for op in ("preview", "reward"))

    assert (preview.has_network, preview.write) == (True, (hub_cache(),))
    assert (reward.has_network, reward.write) == (False, ())
    assert reward.read == (hub_cache() / "datasets--a--b",)


def nested(levels: int) -> list[Any]:
    answer: list[Any] = []
    for _ in range(levels):
        answer = [answer]
    return answer


@pytest.mark.parametrize("answer", [{}, {"metrics": 1}, {"metrics": [nested(100_000)]}])
def test_an_answer_that_tried_code_wrote_itself_is_no_fault_of_the_console(
    project: Project, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(preview, "run_trial", lambda *_args, **_more: answer)
    monkeypatch.setattr(preview, "require_trial", lambda *_args, **_more: None)

    with pytest.raises(TrialFailed, match="an answer that is none"):
        preview.try_algorithm(parse_spec({"data": {"kind": "bundled"}}), project=project)


def test_a_long_answer_is_not_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def run_trial(*_args: Any, **_more: Any) -> dict[str, Any]:
        asked.append(1)
        return {"metrics": ["x" * (1 if len(asked) == 3 else 2 << 20)]}

    monkeypatch.setattr(preview, "run_trial", run_trial)
    monkeypatch.setattr(preview, "require_trial", lambda *_args, **_more: None)
    spec = parse_spec({"knobs": {"optimizer.learning_rate": 3.3e-6}})

    for _ in range(5):
        preview.try_algorithm(spec, project=project)

    assert len(asked) == 3  # two were too long to keep, the third was kept
