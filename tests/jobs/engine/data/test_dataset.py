"""Reading rows, and the sentences when they cannot be read."""

import csv
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from jobs.catalog.spec.runspec import DataSource
from jobs.engine.data.dataset import load_table
from jobs.engine.problem import RunProblem

ROWS = [{"prompt": f"{i}+1?", "answer": str(i + 1)} for i in range(20)]


def jsonl(path: Path, rows: list[dict[str, str]]) -> DataSource:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return DataSource(kind="path", id=str(path))


def refusal(data: DataSource, tmp_path: Path) -> tuple[str, str]:
    with pytest.raises(RunProblem) as caught:
        load_table(data, inputs_dir=tmp_path)
    return caught.value.field, caught.value.message


def test_the_bundled_task_is_the_same_every_time() -> None:
    once, again = (load_table(DataSource(), inputs_dir=Path()) for _ in range(2))

    assert once == again
    assert (len(once.train), len(once.held_out)) == (3686, 410)
    assert once.columns == ("prompt", "answer", "response")


def test_no_held_out_row_is_trained_on() -> None:
    table = load_table(DataSource(), inputs_dir=Path())

    assert not {r["prompt"] for r in table.train} & {r["prompt"] for r in table.held_out}


def test_jsonl_and_parquet_and_a_json_list_give_the_same(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "a.jsonl", ROWS)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(json.dumps(ROWS, indent=1))

    tables = [
        load_table(DataSource(kind="path", id=str(tmp_path / name)), inputs_dir=tmp_path)
        for name in ("a.jsonl", "a.parquet", "a.json")
    ]

    assert data.id == str(tmp_path / "a.jsonl")
    assert tables[0] == tables[1] == tables[2]
    assert tables[0].num_rows == 20
    assert len(tables[0].held_out) == 2


def test_csv_gives_the_same_as_jsonl(tmp_path: Path) -> None:
    rows = [{"prompt": 'a, "b"\nc', "answer": str(i)} for i in range(20)]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["prompt", "answer"])
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "b.csv").write_text("prompt\tanswer\nx, y\t1\n\n")

    commas, tabs = (
        load_table(DataSource(kind="path", id=str(tmp_path / name), eval_share=0.0), inputs_dir=tmp_path)
        for name in ("a.csv", "b.csv")
    )

    assert list(commas.train) == rows
    assert list(tabs.train) == [{"prompt": "x, y", "answer": "1"}]


def test_an_upload_is_read_from_the_inputs(tmp_path: Path) -> None:
    jsonl(tmp_path / ("0" * 64), ROWS)

    table = load_table(DataSource(kind="upload", id=f"upload:{'0' * 64}"), inputs_dir=tmp_path)

    assert table.num_rows == 20


def test_a_second_file_can_be_the_held_out_rows(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "a.jsonl", ROWS)
    jsonl(tmp_path / "b.jsonl", ROWS[:3])

    table = load_table(DataSource(kind="path", id=data.id, eval_split="b.jsonl"), inputs_dir=tmp_path)

    assert (len(table.train), len(table.held_out)) == (20, 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "has no rows"),
        ('{"a": 1}\n{"a":\n', "Line 2 of"),
        ('{"a": 1}\n[1]\n', "is a list"),
        ("[1, 2]", "not of objects"),
        ("[1, 2", "not valid JSON"),
        ('{"a": 1}\n3\n', "Line 2 of"),
        ("a,b\n1,2\n1,2,3\n", "Line 3 of"),
        ('a,b\n1,"2\n', "is not CSV"),
    ],
)
def test_what_is_no_jsonl_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)

    field, message = refusal(DataSource(kind="path", id=str(tmp_path / "a.jsonl")), tmp_path)

    assert field == "data.id"
    assert said in message or "not an object" in message


def test_a_missing_file(tmp_path: Path) -> None:
    assert "There is no file" in refusal(DataSource(kind="path", id=str(tmp_path / "x.jsonl")), tmp_path)[1]


def test_a_missing_second_file_names_its_own_field(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "a.jsonl", ROWS)

    field, _ = refusal(DataSource(kind="path", id=data.id, eval_split="b.jsonl"), tmp_path)

    assert field == "data.eval_split"


def test_parquet_cut_short(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    file = tmp_path / "a.parquet"
    file.write_bytes(file.read_bytes()[:-10])

    assert "not a whole Parquet file" in refusal(DataSource(kind="path", id=str(file)), tmp_path)[1]


def test_bytes_that_are_neither(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\x00\x80")

    assert (
        "neither UTF-8 text nor Parquet" in refusal(DataSource(kind="path", id=str(tmp_path / "a.jsonl")), tmp_path)[1]
    )


def test_an_upload_that_has_not_arrived(tmp_path: Path) -> None:
    assert "has not arrived" in refusal(DataSource(kind="upload", id=f"upload:{'0' * 64}"), tmp_path)[1]


def test_an_unknown_bundled_name(tmp_path: Path) -> None:
    assert "There is: word-problems" in refusal(DataSource(id="gsm8k"), tmp_path)[1]
