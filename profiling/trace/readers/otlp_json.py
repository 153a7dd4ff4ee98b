"""Spans of OpenTelemetry as JSON (OTLP): requests of vLLM and SGLang, or of any service.

One document, or one a line, as the collector's file exporter writes them. A request is a lane's event with what lies in
it; requests that do not overlap share a lane. vLLM tells the parts of a request in attributes, in seconds, after the
semantic conventions of generative AI: queue, prefill and decode become events inside the request.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.category import Category
from profiling.trace.formats.whole_file import check_room, whole_file
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_VALUES = (
    "stringValue",
    "intValue",
    "doubleValue",
    "boolValue",
    "string_value",
    "int_value",
    "double_value",
    "bool_value",
)
_PREFILL = ("gen_ai.latency.time_in_model_prefill",)
_QUEUE = ("gen_ai.latency.time_in_queue", "gen_ai.request.time_in_queue")
_FIRST_TOKEN = ("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token")
_LATEST = 1 << 62
_MOST_ROWS = 1000


class OtlpJsonReader:
    """Reads one file of spans."""

    name = "otlp-json"
    title = "spans of OpenTelemetry (OTLP JSON)"
    suffixes = (".json", ".jsonl", ".json.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """An object with spans of resources."""
        is_object = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        return is_object and (b'"resourceSpans"' in head or b'"resource_spans"' in head)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put all spans into a store. Raises: Unreadable."""
        requests: dict[tuple[str, str], _Request] = {}
        unusable = num_spans = 0
        for document in _documents(whole_file(path, writer, progress=progress, limits=limits), writer):
            for service, span in _spans(document):
                try:
                    one = _Span.read(span)
                except (KeyError, TypeError, ValueError, AttributeError):
                    unusable += 1
                    continue
                num_spans += 1
                key = (service, str(_value_of(span, "traceId") or num_spans))
                requests.setdefault(key, _Request(service=service)).spans.append(one)
        _add_all(list(requests.values()), writer, limits)
        writer.meta("tool", "opentelemetry")
        if unusable:
            writer.note("warning", f"{unusable:,} spans were left out: a time is missing or is none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A span: times in Unix ns."""

    name: str
    begin: int
    end: int
    about: dict[str, Any]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> "_Span":
        begin, end = int(_value_of(raw, "startTimeUnixNano")), int(_value_of(raw, "endTimeUnixNano"))
        if not 0 < begin <= end < _LATEST:
            raise ValueError("a span ends before it begins")
        about = {
            str(pair["key"]): next((pair["value"][key] for key in _VALUES if key in pair["value"]), None)
            for pair in raw.get("attributes", [])
        }
        return cls(name=str(raw["name"]), begin=begin, end=end, about=about)

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Yield queue, prefill and decode, as far as attributes tell of them."""
        queued, first = self._seconds(_QUEUE), self._seconds(_FIRST_TOKEN)
        prefill = self._seconds(_PREFILL)
        if first is None and prefill is not None:
            first = (queued or 0) + prefill
        if first is None:
            return
        begin = self.begin
        if queued:
            yield "queue", begin, min(begin + queued, self.end)
        yield "prefill", min(begin + (queued or 0), self.end), min(begin + first, self.end)
        if begin + first < self.end:
            yield "decode", begin + first, self.end

    def _seconds(self, keys: tuple[str, ...]) -> int | None:
        for value in (self.about.get(key) for key in keys):
            try:
                seconds = -1.0 if value is None else float(value)  # the mapping of protobuf writes int64 as texts
            except (TypeError, ValueError):
                continue
            if 0 <= seconds < 1e6:
                return round(seconds * 1e9)
        return None


@dataclass(slots=True, kw_only=True)
class _Request:
    """The spans of one trace id of a service."""

    service: str
    spans: list[_Span] = field(default_factory=list)

    @property
    def begin(self) -> int:
        return min(span.begin for span in self.spans)

    @property
    def end(self) -> int:
        return max(span.end for span in self.spans)


def _value_of(raw: dict[str, Any], name: str, default: Any = None) -> Any:
    """Return a field by its name, in camelCase as OTLP has it, or in snake_case as some exporters write it."""
    snake = "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name)
    return raw.get(name, raw.get(snake, default))


def _documents(content: bytes, writer: StoreWriter) -> Iterator[dict[str, Any]]:
    """Yield the documents of a file: all of it, or one a line. Raises: Unreadable if there is none."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    check_room(content)
    try:
        yield orjson.loads(content)
        return
    except orjson.JSONDecodeError as error:
        problem = error
    is_any = False
    for line in content.splitlines():
        if line.strip():
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                break
            is_any = True
            yield document
    else:
        return
    if not is_any:
        raise Unreadable(f"The file is cut off or damaged: {problem}.")
    writer.note("warning", "The file is cut off or damaged; what comes after that is missing.")


def _spans(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in _value_of(document, "resourceSpans", []):
        attributes = resource.get("resource", {}).get("attributes", [])
        named = (_value_of(pair["value"], "stringValue") for pair in attributes if pair.get("key") == "service.name")
        service = next(named, "")
        for scope in _value_of(resource, "scopeSpans", resource.get("instrumentationLibrarySpans", [])):
            for span in scope.get("spans", []):
                yield str(service), span


class _Rows:
    """The rows of a service, each taken until its request ends."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []  # a heap of (until when, row)
        self._free: list[int] = []

    def take(self, begin: int, end: int) -> int:
        """Return the first row that is free at `begin`; beyond the most rows, the one that is free next."""
        while self._taken and self._taken[0][0] <= begin:
            heapq.heappush(self._free, heapq.heappop(self._taken)[1])
        if self._free:
            row = heapq.heappop(self._free)
        elif len(self._taken) < _MOST_ROWS:
            row = len(self._taken)
        else:
            until, row = heapq.heappop(self._taken)
            end = max(end, until)
        heapq.heappush(self._taken, (end, row))
        return row


def _add_all(requests: list[_Request], writer: StoreWriter, limits: Limits) -> None:
    """Add requests in the order of their begins, each to the first lane of its service that is free."""
    rows: dict[str, _Rows] = {}
    for request in sorted(requests, key=lambda one: (one.service, one.begin, one.end)):
        place = rows.setdefault(request.service, _Rows()).take(request.begin, request.end)
        lane = writer.lane(
            "thread", process=request.service, pid=-1, thread=f"requests, row {place + 1}", tid=place + 1
        )
        for span in request.spans:
            if writer.events >= limits.events:
                writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")
                return
            info = writer.info(orjson.dumps(span.about).decode()) if span.about else 0
            writer.add(lane, span.begin, span.end - span.begin, writer.name(span.name), Category.RANGE, info=info)
            for name, begin, end in span.parts():
                writer.add(lane, begin, end - begin, writer.name(name), Category.RANGE)


PLUGIN = OtlpJsonReader()
