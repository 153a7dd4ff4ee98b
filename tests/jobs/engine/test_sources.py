"""Finding a model, and the sentences when it cannot be loaded."""

import json
import shutil
from pathlib import Path

import pytest

from jobs.catalog.sections import ModelSource
from jobs.engine.problem import RunProblem, first_sentence
from jobs.engine.sources import BUNDLED, count_parameters, model_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(BUNDLED / "tiny-word-problems", copy)
    return copy


def refusal(folder: Path | str) -> str:
    with pytest.raises(RunProblem) as caught:
        model_folder(ModelSource(kind="path", id=str(folder)))
    assert caught.value.field == "model.id"
    return caught.value.message


def test_the_bundled_model_is_whole_and_small() -> None:
    found = model_folder(ModelSource())

    assert count_parameters(found, "x") == (657_024, "bfloat16")
    assert sum(f.stat().st_size for f in found.iterdir()) < 2_000_000


def test_a_folder_is_found_by_its_path(folder: Path) -> None:
    assert model_folder(ModelSource(kind="path", id=str(folder))) == folder


def test_an_unknown_bundled_name_lists_those_there_are() -> None:
    with pytest.raises(RunProblem, match=r"'llama'. There is: tiny-word-problems"):
        model_folder(ModelSource(id="llama"))


def test_a_bundled_name_cannot_leave_its_folder() -> None:
    with pytest.raises(RunProblem, match="no bundled model"):
        model_folder(ModelSource(id="../bundled/tiny-word-problems"))


def test_a_missing_folder(tmp_path: Path) -> None:
    assert "no folder" in refusal(tmp_path / "nothing")


def test_a_folder_without_config(tmp_path: Path) -> None:
    assert "holds no config.json" in refusal(tmp_path)


def test_a_model_of_another_kind(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))

    assert "not a causal language model: its config.json names BertModel" in refusal(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()

    assert "no safetensors weights" in refusal(folder)


@pytest.mark.parametrize("size", [4, 100, 600_000])
def test_a_file_cut_short(folder: Path, size: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])

    assert "not a whole safetensors file" in refusal(folder)


def test_a_pointer_instead_of_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")

    assert "not a whole safetensors file" in refusal(folder)


def test_a_folder_without_fast_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()

    assert "no tokenizer.json" in refusal(folder)


def test_a_config_that_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")

    assert "config.json of 'model' cannot be read" in refusal(folder)


def test_a_hub_id_without_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(RunProblem, match=r"hub model 'no-such-org/no-such-model' cannot be fetched"):
        model_folder(ModelSource(kind="hub", id="no-such-org/no-such-model"))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Got: ConnectError: [Errno -2] Name or service not known\nAn error happened", "ConnectError: [Errno -2] Name"),
        ("", "OSError."),
        ("Not found.", "Not found."),
    ],
)
def test_what_the_hub_client_says_becomes_a_sentence(said: str, sentence: str) -> None:
    told = first_sentence(OSError(said))

    assert told.startswith(sentence)
    assert told.endswith(".")
    assert ".." not in told
