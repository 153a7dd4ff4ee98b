"""Where the examples of a run come from, one after the other: from memory or from a stream, from one source or several.

Everything follows from the seed and from positions, which a checkpoint keeps: a run that goes on takes the very
examples that it would have taken. Imports no torch.
"""

import random
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from jobs.engine.data.examples import Example, in_order

Position = Mapping[str, int]
"""Where a source stands, as JSON keeps it; {} at its beginning."""


class ExampleSource(Protocol):
    """A source without end: after its last example it begins anew, in another order."""

    def seek(self, position: Position) -> None:
        """Go where the source stood when it told this position."""

    def take(self) -> Example:
        """Return the next example."""

    @property
    def position(self) -> Position:
        """Where it stands."""

    @property
    def passes(self) -> float:
        """How often it has been gone through."""


class ExamplesInMemory:
    """Examples that are all there; each pass is a new shuffle of all."""

    def __init__(self, examples: Sequence[Example], *, seed: int) -> None:
        self._examples, self._seed = examples, seed
        self.seek({})

    def seek(self, position: Position) -> None:
        """See ExampleSource."""
        self._num_taken = position.get("taken", 0)
        self._order = in_order(len(self._examples), seed=self._seed, start=self._num_taken)

    def take(self) -> Example:
        """See ExampleSource."""
        self._num_taken += 1
        return self._examples[next(self._order)]

    @property
    def position(self) -> Position:
        """See ExampleSource."""
        return {"taken": self._num_taken}

    @property
    def passes(self) -> float:
        """See ExampleSource."""
        return self._num_taken / len(self._examples)


class TrainingData:
    """The sources of a run by name, each with its weight: from which one an example comes is drawn for each anew."""

    def __init__(self, sources: Mapping[str, ExampleSource], *, weights: Sequence[float], seed: int) -> None:
        """Begin at the beginning. `weights` are any numbers above 0, one for each source."""
        self._sources, self._seed = sources, seed
        self._names = list(sources)
        self._ends = list(accumulate(weights))
        self._counts: Counter[str] = Counter()

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Go on where a checkpoint stood; a source that it does not name begins at its beginning."""
        for name, source in self._sources.items():
            source.seek(positions.get(name, {}))

    def take(self, begin: int, count: int) -> list[Example]:
        """Return the examples from number `begin` of the run on."""
        names = [self._pick(number) for number in range(begin, begin + count)]
        self._counts = Counter(names)
        return [self._sources[name].take() for name in names]

    def _pick(self, number: int) -> str:
        if len(self._names) == 1:
            return self._names[0]
        point = random.Random(f"{self._seed}/source/{number}").random() * self._ends[-1]
        return self._names[min(bisect(self._ends, point), len(self._names) - 1)]

    @property
    def positions(self) -> dict[str, dict[str, int]]:
        """Where each source stands."""
        return {name: dict(source.position) for name, source in self._sources.items()}

    @property
    def metrics(self) -> dict[str, float]:
        """`train/epoch`, passes over the first source, and the share that each had of the examples taken last."""
        first = self._sources[self._names[0]]
        total = sum(self._counts.values())
        shares = {f"data/{name}/share": self._counts[name] / total for name in self._names} if total else {}
        return {"train/epoch": first.passes, **(shares if len(self._names) > 1 else {})}
