"""What counts as a secret of a process, and that a report keeps its length without it."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from profiling.redaction import Mask, hide, hide_in, hider, overwrite, own_secrets, secrets_of


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("RAY_AUTH_TOKEN", "c0ffee-c0ffee", "c0ffee-c0ffee"),
        ("HF_TOKEN", "hf_abcdefgh", "hf_abcdefgh"),
        ("WANDB_API_KEY", "0123456789", "0123456789"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("DATABASE_URL", "postgres://pitwall:open-sesame@db:5432/pitwall", "open-sesame"),
        ("https_proxy", "http://:open-sesame@proxy:3128", "open-sesame"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=0123456789", "AccountKey=0123456789"),
        ("SENTRY_DSN", "https://0123@sentry/1", "https://0123@sentry/1"),
        ("SLACK_WEBHOOK_URL", "https://hooks/T0/B0/x", "https://hooks/T0/B0/x"),
        ("GITLAB_PAT", "0123456789", "0123456789"),
        ("NOTE", "for ci: ghp_" + "aB3" * 12, "ghp_" + "aB3" * 12),
        (
            "SESSION",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        ),
        ("DB_PWD", "open-sesame", "open-sesame"),
        ("BLOB_SAS", "sv=2026&sig=01", "sv=2026&sig=01"),
        ("RAY_JOB_CONFIG", json.dumps({"runtime_env": {"env_vars": {"PITWALL_TOKEN": "4f5e6d7c"}}}), "4f5e6d7c"),
    ],
)
def test_a_secret_is_known_by_its_name_or_by_its_place(name: str, value: str, secret: str) -> None:
    assert secrets_of({name: value}) == {secret.encode()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RAY_AUTH_MODE", "token"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("GREETING", "good morning"),
        ("X", "{not json"),
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/srv/pitwall"),
        ("OLDPWD", "/srv/pitwall"),
        ("LD_LIBRARY_PATH", "/usr/lib64"),
        ("COMPATIBLE", "everything"),
        ("GIT_AUTHOR_NAME", "Jane Miller"),
        ("SASL_MECHANISM", "SCRAM-SHA-256"),
    ],
)
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    assert secrets_of({name: value}) == frozenset()


def test_a_secret_that_left_the_environment_is_still_known() -> None:
    code = "import os; del os.environ['A_TOKEN']; from profiling.redaction import own_secrets; print(own_secrets())"
    environment = {**os.environ, "A_TOKEN": "still-here"}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert "still-here" in done.stdout
    assert b"still-here" not in own_secrets()


def test_the_file_keeps_its_length_and_all_else(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"\0A=sekret-1\0sekret-1-longer\0sekret-1sekret-1\0end")

    count = overwrite(path, [b"sekret-1", b"sekret-1-longer", b"not there"])

    assert count == 4
    assert path.read_bytes() == b"\0A=********\0***************\0****************\0end"


BASE64 = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ubw=="
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("login with hf_" + "aB3" * 11, "login with ***"),
        ("key sk-proj-" + "a1b2" * 6 + ", then", "key ***, then"),
        ("ghp_" + "aB3" * 12, "***"),
        ("glpat-" + "aB3-" * 5, "***"),
        ("xoxb-1234567890-abcdef", "***"),
        ("AKIA" + "ABCD1234" * 2, "***"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlX2hlcmU", "token ***"),
        ("pw_" + "aB3_-" * 9, "***"),
        ("postgres://pitwall:open-sesame@db:5432/x", "postgres://pitwall:***@db:5432/x"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("export WANDB_API_KEY=0123456789abcdef", "export WANDB_API_KEY=***"),
        ("env_vars.HF_TOKEN=hf_abcdefgh other=1", "env_vars.HF_TOKEN=*** other=1"),
        (f"AccountName=x;AccountKey={BASE64};Suffix=y", "AccountName=x;AccountKey=***;Suffix=y"),
        ("https://blob/x?sv=2026&sig=abcdefgh12%3D&se=1", "https://blob/x?sv=2026&sig=***&se=1"),
        (f"conn={BASE64}", "conn=***"),
        ('{"url": "https://me:open-sesame@proxy"}', '{"url": "https://me:***@proxy"}'),
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_a_text(text: str, hidden: str) -> None:
    assert hide(text) == hidden
    assert hide_in({"a": [text, 3], "b": None}) == {"a": [hidden, 3], "b": None}


@pytest.mark.parametrize(
    "text",
    [
        "step 4 loss=0.123 max_tokens=512 eos_token=<|endoftext|> num_tokens=12345678",
        "sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        f"sha256_b64={BASE64} md5={BASE64} checksum={BASE64}",
        "commit 55229d1f5c0e4b7a9d3e of run r-12ab34cd in s-0011aabb",
        f"data:image/png;base64,{PIXEL}",
        f'<img src="data:image/png;base64,{PIXEL * 3}">',
        f"image={PIXEL * 3}",
        "task-0123456789012345678901 at sk-learn-contrib-extension-package",
        "TOKENIZERS_PARALLELISM=false PWD=/srv/pitwall/runs NCCL_DEBUG=INFO",
        "http://127.0.0.1:8265/api/jobs/ and s3://bucket:443/key user@host",
        "signature of forward: (x: int = 3) -> Bearer",
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct trainer.n_gpus_per_node=8",
        "hf_hub_download failed; xox-files; AKIAfterwards; ghp_short",
        "x" * 20_000 + "=" + "A_TOKEN" * 3000,
    ],
)
def test_hashes_ids_and_pictures_stay(text: str) -> None:
    assert hide(text) == text


def test_known_secrets_are_hidden_by_their_value_also_as_json_writes_them() -> None:
    secret = 'pa"ss\\wörd'
    take_out = hider([secret.encode(), b"open-sesame", b"open-sesame-2"])

    assert take_out(f"say {secret} and open-sesame-2, open-sesame") == "say *** and ***, ***"
    assert json.loads(take_out(json.dumps({"a": secret}))) == {"a": "***"}
    assert hider([])("nothing known") == "nothing known"


@pytest.mark.parametrize("secret", ["pass word/ö+'=1", "ab/cd+ef==", "a'b\"c\\d-efgh", "line-one!(2)*"])
def test_a_secret_is_hidden_as_python_and_addresses_write_it(secret: str) -> None:
    ways = [repr(secret), repr(secret.encode()), f"{secret!r}"[1:-1], quote(secret), quote(secret, safe="")]
    ways += [urlencode({"x": secret})[2:], quote(secret, safe="!'()*")]
    hide_them = hider([secret.encode()])

    for text in ways:
        assert hide_them(text).strip("b'\"") == "***", text


def test_a_mask_overwrites_each_form_of_a_secret_and_changes_no_length() -> None:
    secret = 'open-"sesame"'
    mask = Mask([secret.encode()])
    text = (
        f"{secret} {json.dumps(secret)} {quote(secret, safe='')} {base64.b64encode(secret.encode()).decode()}".encode()
    )

    masked = mask(text)

    assert len(masked) == len(text)
    assert b"sesame" not in masked
    assert mask.reach >= len(quote(secret, safe=""))
    assert Mask(())(text) == text
