"""Details of events in a Chrome trace of torch: their arguments, without what is kept elsewhere."""

from collections.abc import Callable
from operator import itemgetter

import orjson

from profiling.trace.formats.torch_event import Args
from profiling.trace.writer import StoreWriter

_KNOWN_BYTES = 16 << 20
_ENTRY_BYTES = 150
"""What an entry of a table takes beside its text, about."""
_Layout = tuple[Callable[[Args], object] | None, dict[bytes, int]]
"""Of details with equal keys: what takes the values that are told, and the numbers of those that came before."""
_NO_DETAIL = frozenset(
    {
        "bytes",
        "cbid",
        "correlation",
        "device",
        "Ev Idx",
        "External id",
        "external id",
        "Fwd thread id",
        "Profiler Event Index",
        "Python id",
        "Python module id",
        "Python parent id",
        "Python thread",
        "queued",
        "Record function id",
        "Sequence number",
        "stream",
        "Trace id",
        "Trace iteration",
        "Trace name",
    }
)
"""What is kept elsewhere, or is another number for each event and says nothing to people."""


class TorchDetails:
    """Most events have the details of another one: only what differs between events of equal keys is looked at, and the
    text is made once.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._kept_bytes = 0

    def number(self, args: Args) -> int:
        """Return the number of an event's details, 0 if it has none to tell."""
        keys = tuple(args)
        layout = self._layouts.get(keys)
        if layout is None:
            shown = [key for key in keys if key not in _NO_DETAIL]
            layout = (itemgetter(*shown) if shown else None), {}
            if self._may_keep(sum(map(len, keys))):
                self._layouts[keys] = layout
        chosen, infos = layout
        if chosen is None:
            return 0
        values = orjson.dumps(chosen(args))
        info = infos.get(values)
        if info is None:
            details = {key: value for key, value in args.items() if key not in _NO_DETAIL and value != ""}
            info = self._writer.info(orjson.dumps(details).decode()) if details else 0
            if self._may_keep(len(values)):
                infos[values] = info
        return info

    def _may_keep(self, size: int) -> bool:
        """Return True if what is known may grow by so many bytes: a hostile trace has no end of them."""
        size += _ENTRY_BYTES
        if self._kept_bytes + size > _KNOWN_BYTES:
            return False
        self._kept_bytes += size
        return True
