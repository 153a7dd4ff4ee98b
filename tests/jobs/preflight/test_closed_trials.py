"""What trials still do when they are closed in: read an upload, a path, a model, the hub."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_json
from jobs.preflight import client
from jobs.preflight.client import run_trial
from jobs.preflight.inputs import allowance_for, uploads_dir
from jobs.preflight.sandbox import HOUSE, LEVELS, Confinement, why_not

ROWS = b'{"prompt": "1 + 1?", "answer": "2"}\n' * 20
CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"]}).encode()


@pytest.fixture(params=[*LEVELS, "none"], autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Close trials in to this level, if this machine can."""
    if request.param != "none" and (reason := why_not(request.param)):
        pytest.skip(reason)
    monkeypatch.setattr(client, "confinement", lambda: Confinement(level=request.param))
    return str(request.param)


def answered(op: str, **raw: Any) -> dict[str, Any]:
    spec = parse_spec(raw)
    asked = {"op": op, "spec": to_json(spec), "inputs_dir": str(uploads_dir()), "samples": 2}
    return run_trial(asked, timeout_seconds=60, allowance=allowance_for(op, spec, project=None))


def test_an_upload_is_previewed_with_a_model_of_links(tmp_path: Path) -> None:
    sha = hashlib.sha256(ROWS).hexdigest()
    uploads_dir().mkdir(parents=True, exist_ok=True)
    (uploads_dir() / sha).write_bytes(ROWS)
    (uploads_dir() / sha).chmod(0o600)
    shutil.copytree(HOUSE / "jobs/engine/bundled/tiny-word-problems", tmp_path / "blobs")
    (tmp_path / "model").mkdir()
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "model" / file.name).symlink_to(Path("../blobs") / file.name)
    (tmp_path / "here").symlink_to(tmp_path / "model")

    data, model = {"kind": "upload", "id": f"upload:{sha}"}, {"kind": "path", "id": str(tmp_path / "here")}

    assert answered("preview", data=data, model=model)["num_rows"] == 20
    assert answered("model", model=model)["num_parameters"] == 657_024
    assert [row["reward"] for row in answered("reward", data=data, reward={"kind": "exact_match"})["results"]] == [
        1.0,
        0.0,
    ]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub that has one file, and tells who asked with which token."""
    tokens: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.send_header("X-Repo-Commit", "c" * 40)
            self.send_header("ETag", '"e"')
            self.send_header("Content-Length", str(len(CONFIG)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(CONFIG)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield tokens
        server.shutdown()


def test_what_is_on_the_hub_is_fetched_into_its_cache_with_the_token(hub: list[str], settings: Any) -> None:
    settings.HF_TOKEN = "hf_secret"

    found = answered("config", model={"kind": "hub", "id": "some/model"})

    assert found["config"] == json.loads(CONFIG)
    assert "Bearer hf_secret" in hub
