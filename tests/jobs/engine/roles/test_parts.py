"""Pieces of tensors in files: cut, written, and found again whatever was cut where."""

from pathlib import Path

import pytest
import torch

from jobs.engine.problem import RunProblem
from jobs.engine.roles.part_writer import PartWriter
from jobs.engine.roles.parts import FlatSlice, Parts, batches, check_parts, part_bytes, write_part


def piece(start: int, numel: int, state: str = "weights", name: str = "a/b.c") -> FlatSlice:
    return FlatSlice(state=state, name=name, start=start, numel=numel)


def written(folder: Path, *pieces: FlatSlice) -> Parts:
    for number, p in enumerate(pieces):
        values = torch.arange(float(p.start), float(p.start + p.numel))
        write_part(folder / f"{number}.safetensors", part_bytes({p.key: values}))
    return Parts(folder)


def test_pieces_are_cut_and_grouped_below_the_limit() -> None:
    groups = batches([piece(10, 5), piece(0, 2, "exp_avg"), piece(0, 1, "exp_avg_sq")], limit_bytes=12)

    assert groups == [[piece(10, 3)], [piece(13, 2)], [piece(0, 2, "exp_avg"), piece(0, 1, "exp_avg_sq")]]


def test_elements_are_found_across_files(tmp_path: Path) -> None:
    parts = written(tmp_path, piece(0, 3), piece(3, 4), piece(7, 3))

    assert parts.states == {"weights"}
    assert parts.read(piece(2, 6)).tolist() == [2, 3, 4, 5, 6, 7]


def test_elements_that_are_in_no_file_are_told(tmp_path: Path) -> None:
    parts = written(tmp_path, piece(0, 3), piece(7, 3))

    with pytest.raises(RunProblem, match=r"lacks 4 of 10 elements of weights of a/b\.c"):
        parts.read(piece(0, 10))
    with pytest.raises(RunProblem, match="lacks 10 of 10 elements of exp_avg"):
        parts.read(piece(0, 10, "exp_avg"))


def test_a_writer_writes_beside_and_lets_go_of_what_it_has_written(tmp_path: Path) -> None:
    parts = [{piece(0, 3).key: torch.arange(3.0)}, {piece(3, 2).key: torch.arange(3.0, 5.0).bfloat16()}]
    writer = PartWriter(1)

    assert writer.files(waits=False) == []  # nothing was begun
    writer.start(tmp_path, parts)
    files = writer.files(waits=True)

    assert files is not None
    assert [file.name for file in files] == ["1-0.safetensors", "1-1.safetensors"]
    check_parts(tmp_path, files, what="It")
    assert Parts(tmp_path).read(piece(0, 5)).tolist() == [0, 1, 2, 3, 4]
    assert parts == [{}, {}]


def test_a_writer_raises_what_the_disk_said_where_its_files_are_asked_for(tmp_path: Path) -> None:
    writer = PartWriter(0)

    writer.start(tmp_path / "none", [{piece(0, 1).key: torch.zeros(1)}])

    with pytest.raises(FileNotFoundError):
        writer.files(waits=True)
    writer.start(tmp_path, [{piece(0, 1).key: torch.zeros(1)}])
    assert len(writer.files(waits=True) or []) == 1
