"""The address of the page Compare, which holds the whole view; a value that is wrong falls back to its default."""

import re
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest
from django.http.request import QueryDict

from jobs.comparison.compare import MAX_RUNS

TABS = ("verdict", "charts", "table", "config", "timing", "traces", "samples")
_RUN_ID = re.compile(r"r-[0-9a-z]{1,14}")
_MAX_STEP = 2**31 - 1
_MAX_NAMES = 5  # of entries that are no run ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuery:
    """What the address asks for. `step` is that of at-step values, `at` that of samples; None: the newest in common.
    `target` is a level of the outcome; None: the best that all reached. `unreadable`: texts in the place of run ids;
    `num_too_many`: runs above the most that are compared.

    `axis`, `smooth`, `zoom`, `log` and `metrics` are kept for the charts, which read them in the browser.
    """

    runs: tuple[str, ...]
    unreadable: tuple[str, ...]
    num_too_many: int
    study: str
    group: str
    base: str
    hidden: frozenset[str]
    tab: str
    step: int | None
    at: int | None
    kind: str
    page: int
    query: str
    target: float | None
    is_all: bool
    chart: dict[str, str]

    def address(self, **changes: object) -> str:
        """Return the query of this view with changes, without what is the default anyway; None takes a value out."""
        values: dict[str, object] = {
            "runs": ",".join(self.runs),
            "study": self.study,
            "group": self.group,
            "base": self.base,
            "hide": ",".join(sorted(self.hidden)),
            "tab": self.tab if self.tab != TABS[0] else "",
            "step": self.step,
            "at": self.at,
            "kind": self.kind if self.kind != "train" else "",
            "page": self.page if self.page > 1 else "",
            "q": self.query,
            "target": self.target,
            "all": "1" if self.is_all else "",
            **self.chart,
            **changes,
        }
        return urlencode({k: v for k, v in values.items() if v not in ("", None)}, safe=",/")


def read_address(request: HttpRequest) -> ComparisonQuery:
    """Return what the request asks for."""
    get = request.GET
    named = [part.strip() for part in get.get("runs", "").split(",") if part.strip()]
    runs = list(dict.fromkeys(name for name in named if _RUN_ID.fullmatch(name)))
    hidden = frozenset(part for part in get.get("hide", "").split(",") if _RUN_ID.fullmatch(part))
    tab, base = get.get("tab", ""), get.get("base", "")
    return ComparisonQuery(
        runs=tuple(runs[:MAX_RUNS]),
        unreadable=tuple(dict.fromkeys(name[:40] for name in named if not _RUN_ID.fullmatch(name)))[:_MAX_NAMES],
        num_too_many=max(0, len(runs) - MAX_RUNS),
        study=_word(get, "study", r"s-[0-9a-z]{1,14}"),
        group=_word(get, "group", r"[a-z_]{1,40}\.[a-z0-9_.]{1,80}"),
        base=base if _RUN_ID.fullmatch(base) else "",
        hidden=hidden,
        tab=tab if tab in TABS else TABS[0],
        step=_number(get, "step"),
        at=_number(get, "at"),
        kind="eval" if get.get("kind") == "eval" else "train",
        page=_number(get, "page") or 1,
        query=" ".join(get.get("q", "").replace("\0", "").split())[:200],
        target=_level(get),
        is_all=get.get("all") == "1",
        chart=_chart(get),
    )


def _chart(get: QueryDict) -> dict[str, str]:
    patterns = {
        "x": r"time|tokens|samples|gpu_hours",
        "smooth": r"0(\.\d{1,4})?",
        "by": r"gaussian|mean",
        "zoom": r"[0-9.e+_-]{3,60}",
        "log": r"1",
        "clip": r"1",
        "m": r"[^\0]{1,2000}",
    }
    texts = {name: get.get(name, "") for name in patterns}
    return {name: value for name, value in texts.items() if re.fullmatch(patterns[name], value)}


def _word(get: QueryDict, name: str, pattern: str) -> str:
    value = get.get(name, "")
    return value if re.fullmatch(pattern, value) else ""


def _level(get: QueryDict) -> float | None:
    text = get.get("target", "")
    return float(text) if re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,12})?", text) else None


def _number(get: QueryDict, name: str) -> int | None:
    text = get.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= _MAX_STEP else None
