"""What another trainer trains on has a digest, whether the console holds it or the cluster."""

import hashlib
from pathlib import Path

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner import training_data
from jobs.runner.training_data import data_digest


def spec_of(kind: str, where: str, trainer: str = "verl") -> RunSpec:
    return parse_spec({"trainer": {"name": trainer}, "algorithm": "sft", "data": {"kind": kind, "id": where}})


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("kind", "where"), [("bundled", "word-problems"), ("upload", f"upload:{'ab' * 32}")])
def test_materialized_rows_are_hashed(tmp_path: Path, kind: str, where: str) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "train.jsonl").write_bytes(b"{}\n")

    assert data_digest(spec_of(kind, where, "openrlhf"), tmp_path) == sha256(b"{}\n")


def test_a_file_has_its_own_digest_and_several_have_one_of_names_and_contents(tmp_path: Path) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    both = spec_of("path", f"{one},{other}")

    digest = data_digest(both, tmp_path)
    of_folder = data_digest(spec_of("path", str(tmp_path)), tmp_path)
    other.write_bytes(b"3")

    assert data_digest(spec_of("path", str(one)), tmp_path) == sha256(b"1")
    assert digest == sha256(f"one.parquet\0{sha256(b'1')}\nother.parquet\0{sha256(b'2')}\n".encode())
    assert of_folder == digest
    assert data_digest(both, tmp_path) != digest


def test_what_is_too_large_or_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"12345")
    monkeypatch.setattr(training_data, "MAX_DATA_BYTES", 4)

    assert data_digest(spec_of("path", str(tmp_path / "rows.jsonl")), tmp_path) == "too large to hash: 0.0 GB"
    assert "No such file" in data_digest(spec_of("path", "/nowhere/rows.jsonl"), tmp_path)


def test_nothing_is_hashed_where_the_trainer_or_the_hub_tells_it(tmp_path: Path) -> None:
    assert data_digest(spec_of("hub", "me/rows"), tmp_path) == ""
    assert data_digest(spec_of("path", "/data/rows.jsonl", "native"), tmp_path) == ""
