"""The files that training state lies in: pieces of tensors, addressed by parameter and not by rank.

A piece is a run of elements of one flattened tensor. Whoever loads asks for the elements it needs, so neither the
number of ranks nor the ZeRO stage of who wrote them matters. Elements are written in the type of who held them, float32
or bfloat16, and read as float32, which changes none of them.
"""

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from jobs.engine.atomic_folder import sync
from jobs.engine.problem import CheckpointLost, RunProblem
from jobs.engine.roles.language_model import buckets

WEIGHTS = "weights"
_ELEMENT_BYTES = 4
_READ_BYTES = 16 << 20
_READERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatSlice:
    """Elements [start, start + numel) of a flattened tensor: a parameter's weights, or one of its optimizer's tensors
    (`state` is "weights", or the optimizer's own key, such as "exp_avg").
    """

    state: str
    name: str
    start: int
    numel: int

    @property
    def key(self) -> str:
        """The tensor's name in a part file."""
        return f"{self.state}/{self.start}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A part as it was written: its file name, size, and the CRC-32 of all its bytes."""

    name: str
    size: int
    crc32: int


def batches(pieces: Sequence[FlatSlice], *, limit_bytes: int) -> list[list[FlatSlice]]:
    """Return the pieces in order, cut and grouped so that each group holds at most `limit_bytes`."""
    most = max(limit_bytes // _ELEMENT_BYTES, 1)
    cut = [
        FlatSlice(state=p.state, name=p.name, start=begin, numel=min(most, p.start + p.numel - begin))
        for p in pieces
        for begin in range(p.start, p.start + p.numel, most)
    ]
    return [[cut[i] for i in run] for run in buckets([c.numel * _ELEMENT_BYTES for c in cut], limit_bytes)]


def part_name(rank: int, index: int) -> str:
    """Return the name of a rank's part file in the folder of its role."""
    return f"{rank}-{index}.safetensors"


def part_bytes(values: dict[str, Tensor]) -> bytes:
    """Return the part file (safetensors) of tensors by piece key."""
    data: bytes = save(values)
    return data


def write_part(path: Path, data: bytes) -> PartFile:
    """Write a part file and wait until it is on the disk."""
    path.write_bytes(data)
    sync(path)
    return PartFile(name=path.name, size=len(data), crc32=zlib.crc32(data))


def check_parts(folder: Path, parts: Sequence[PartFile], *, what: str) -> None:
    """Read every part file and compare it with what was written.

    Raises: CheckpointLost naming the first file that is missing, cut short or damaged, or that the disk does not give;
    `what` begins its sentence.
    """

    def check(part: PartFile) -> str:
        path = folder / part.name
        if not path.is_file():
            return f"its file {part.name} is missing"
        try:
            size = path.stat().st_size
            if size != part.size:
                return f"its file {part.name} has {size:,} bytes instead of {part.size:,}"
            crc32 = 0
            with path.open("rb") as file:
                while data := file.read(_READ_BYTES):
                    crc32 = zlib.crc32(data, crc32)
        except OSError as error:
            return f"its file {part.name} cannot be read ({error.strerror})"
        return "" if crc32 == part.crc32 else f"its file {part.name} is damaged (checksum)"

    with ThreadPoolExecutor(_READERS) as pool:
        for problem in pool.map(check, parts):
            if problem:
                raise CheckpointLost(f"{what} is not whole: {problem}. Resume from another checkpoint.")


class Parts:
    """Read any elements from the part files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._files: list[Any] = [safe_open(path, framework="pt") for path in sorted(folder.glob("*.safetensors"))]
        self._places: dict[tuple[str, str], list[tuple[int, int, Any, str]]] = {}
        for file in self._files:
            for key in file.keys():  # noqa: SIM118 (not a dict)
                state, start, name = key.split("/", 2)
                begin = int(start)
                numel = file.get_slice(key).get_shape()[0]
                self._places.setdefault((state, name), []).append((begin, begin + numel, file, key))

    @property
    def states(self) -> set[str]:
        """What there is of each parameter: "weights" and the optimizer's keys."""
        return {state for state, _ in self._places}

    def read(self, piece: FlatSlice) -> Tensor:
        """Return the elements of a piece, float32: [numel].

        Raises: RunProblem if some of them are in no file.
        """
        end = piece.start + piece.numel
        values = torch.empty(piece.numel, dtype=torch.float32)
        num_found = 0
        for begin, stop, file, key in self._places.get((piece.state, piece.name), ()):
            low, high = max(begin, piece.start), min(stop, end)
            if low < high:
                values[low - piece.start : high - piece.start] = file.get_slice(key)[low - begin : high - begin]
                num_found += high - low
        if num_found != piece.numel:
            raise RunProblem(
                "resume",
                f"The checkpoint lacks {piece.numel - num_found:,} of {piece.numel:,} elements of {piece.state} of "
                f"{piece.name}. Resume from another checkpoint.",
            )
        return values


def to_json(parts: Sequence[PartFile]) -> list[dict[str, object]]:
    """Return the parts as plain values."""
    return [asdict(part) for part in parts]
