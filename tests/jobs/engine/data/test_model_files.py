"""Finding a model, and the sentences when it cannot be loaded."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.catalog.spec.runspec import ModelSource
from jobs.engine.data.model_files import BUNDLED, count_parameters, model_folder, read_config
from jobs.engine.problem import RunProblem, first_sentence


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


class Hub(ThreadingHTTPServer):
    """A hub with one config.json, or one that answers 503; counts what it is asked."""

    config = b'{"model_type": "llama"}'

    def __init__(self, *, is_there: bool) -> None:
        super().__init__(("127.0.0.1", 0), HubAnswer)
        self.is_there = is_there
        self.asked: list[str] = []


class HubAnswer(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        assert isinstance(self.server, Hub)
        self.server.asked.append(self.path)
        self.send_response(200 if self.server.is_there else 503)
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(Hub.config)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(Hub.config)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("is_there", [True, False])
def test_a_hub_is_asked_for_a_config_and_asked_once_if_it_does_not_answer(tmp_path: Path, is_there: bool) -> None:
    with Hub(is_there=is_there) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        env = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(tmp_path)}
        code = (
            "from jobs.catalog.spec.runspec import ModelSource\n"
            "from jobs.engine.data.model_files import read_config\n"
            "print(read_config(ModelSource(kind='hub', id='some/model')))"
        )
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        hub.shutdown()

    if is_there:
        assert done.stdout.strip() == "{'model_type': 'llama'}", done.stderr
    else:
        assert "config.json of the hub model 'some/model' cannot be fetched" in done.stderr
        assert [path for path in hub.asked if path.endswith("config.json")] == ["/some/model/resolve/main/config.json"]


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


def test_a_config_is_read_with_what_the_headers_of_the_weights_count(folder: Path) -> None:
    config = read_config(ModelSource(kind="path", id=str(folder)))

    assert config["safetensors"] == {"parameters": {"BF16": 657_024}}


def test_weights_that_are_not_whole_are_not_counted(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "safetensors" not in read_config(ModelSource(kind="path", id=str(folder)))
