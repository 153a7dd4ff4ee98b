"""Policy ranks without DeepSpeed: one parameter of eight elements, shared out evenly, with one optimizer tensor."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jobs.engine.roles.parts import FlatSlice, PartFile, Parts, batches, part_bytes, part_name, write_part

NAME, NUMEL = "layer.weight", 8


class Rank:
    """Holds its share of `layer.weight` and of `exp_avg`; `has_disk` False: its node has not the driver's folder.

    What it writes beside training it has written once it `is_quick`, or is waited for.
    """

    is_quick = False

    def __init__(self, rank: int = 0, num_ranks: int = 1, *, has_disk: bool = True, error: str = "") -> None:
        self.rank, self._error, self._has_disk = rank, error, has_disk
        size = NUMEL // num_ranks
        self.start, self.numel = rank * size, size
        self.held = {"weights": torch.arange(0.0, NUMEL), "exp_avg": torch.arange(0.0, NUMEL) / 10}
        self.calls: list[str] = []

    def forget(self) -> "Rank":
        """Lose the state, as a new process has none."""
        self.held = {state: torch.zeros(NUMEL) for state in self.held}
        return self

    def share(self, state: str) -> list[float]:
        """This rank's elements."""
        return [round(float(v), 4) for v in self.held[state][self.start : self.start + self.numel]]

    def call(self, method: str, *arguments: Any, step: int = -1, phase: str = "", **options: Any) -> Any:
        self.calls.append(method)
        return getattr(self, f"on_{method}")(*arguments, **options)

    def on_sees(self, folder: str, token: str) -> bool:
        return self._has_disk and (Path(folder) / "token").read_text() == token

    def on_state_metadata(self) -> dict[str, Any]:
        return {"names": [NAME], "shapes": [[2, 4]], "dtype_names": ["float32"]}

    def on_optimizer_step(self) -> int:
        return 7

    def _pieces(self, states: Any) -> list[FlatSlice]:
        return [FlatSlice(state=s, name=NAME, start=self.start, numel=self.numel) for s in states]

    def on_save_parts(self, folder: str, limit: int) -> list[PartFile]:
        assert self._has_disk
        data = self.on_state_part(0, limit)
        assert data is not None
        written = write_part(Path(folder) / part_name(self.rank, 0), data)
        if self._error:
            raise OSError(28, self._error)
        return [written]

    def on_state_bytes(self) -> int:
        return 2 * 4 * self.numel

    def on_begin_save(self, folder: str, limit: int) -> None:
        self._folder, self._saved = Path(folder), self.on_state_part(0, limit)

    def on_saved_parts(self, *, waits: bool) -> list[PartFile] | None:
        if not (waits or self.is_quick):
            return None
        if self._error:
            raise OSError(28, self._error)
        assert self._saved is not None
        return [write_part(self._folder / part_name(self.rank, 0), self._saved)]

    def on_state_part(self, index: int, limit: int) -> bytes | None:
        groups = batches(self._pieces(self.held), limit_bytes=limit)
        if index >= len(groups):
            return None
        return part_bytes({p.key: self.held[p.state][p.start : p.start + p.numel].clone() for p in groups[index]})

    def on_begin_load(self) -> None: ...

    def on_wanted(self, states: list[str], limit: int) -> list[list[FlatSlice]]:
        return batches(self._pieces(states), limit_bytes=limit)

    def on_take(self, pieces: list[FlatSlice], values: list[Tensor]) -> None:
        for piece, elements in zip(pieces, values, strict=True):
            self.held[piece.state][piece.start : piece.start + piece.numel] = elements

    def on_load_parts(self, folder: str, states: list[str], limit: int) -> None:
        assert self._has_disk
        parts = Parts(Path(folder))
        for pieces in self.on_wanted(states, limit):
            self.on_take(pieces, [parts.read(piece) for piece in pieces])

    def on_finish_load(self, optimizer_step: int) -> None:
        assert optimizer_step == 7


class FakeWorkerGroup:
    """As much of a worker group as saving and loading need; `critic`: ranks of a second trained role."""

    def __init__(self, *ranks: Rank, critic: tuple[Rank, ...] = ()) -> None:
        self.policies = ranks
        self.trained = {"policy": ranks} | ({"critic": critic} if critic else {})

    def gather(self, calls: Any) -> list[Any]:
        return list(calls)
