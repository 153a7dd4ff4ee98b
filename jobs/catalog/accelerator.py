"""What is known of accelerators: `accelerators/*.toml`, a file per accelerator; its id is the file's name.

    label = "H100 SXM 80 GB"
    vendor = "nvidia"
    names = ["H100", "NVIDIA H100 80GB HBM3"]    # the first is its own; the others may be those of others too
    memory_gb = 80                               # as on the label
    usable_gib = 79.19                           # as a framework reports the total, where a log showed it; or
    usable_share = 0.985                         # of the label taken as GiB, and source says why
    bandwidth_tb_s = 3.35
    link = "nvlink"
    link_gb_s = 450                              # to the neighbors in a node, one way
    domain = 8                                   # devices that the link joins
    pcie_gb_s = 63                               # to the host, one way
    watts = 700
    attention = ["flash2", "flash3"]
    peer_to_peer = true
    evidence = ["table", "log"]
    source = "where the numbers were read, and what was assumed"
    [peak_tflops]                                # dense, no sparsity
    bf16 = 989
    [best_tflops]                                # the best matmul rate that anybody measured

A number without a source is not written. Labels say GB, and most makers mean GiB: what a framework reports is kept
apart, in bytes, and may be more than the label's 10^9 bytes.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from jobs.catalog.sentence import Sentence
from jobs.catalog.tables import folder_tables

Evidence = Literal[
    "log", "table", "framework", "vendor"
]  # read in a log, a measured table, a framework's code, a sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator, as a job sees it (a die of a package that shows itself as several devices is one).

    `memory_bytes` as on the label; `usable_bytes` as the framework reports the total; `bandwidth` of memory in
    bytes/s; `peak` dense FLOP/s by type ("bf16", "fp16", "fp8"); `best` the best matmul rate seen, FLOP/s by type;
    `link_bandwidth` to a neighbor in the same node, bytes/s one way; `link` is its kind ("nvlink", "pcie", "xgmi",
    "hccs", "ethernet"); `domain` how many are joined by it; `pcie_bandwidth` to the host, bytes/s one way. `names` are
    what Ray, NVML and people call it. `attention` are the kernels it runs: "flash2", "flash3".
    `is_usable_logged`: `usable_bytes` was read in a log, not taken as a share of the label.
    """

    id: str
    label: str
    vendor: Literal["nvidia", "amd", "huawei", "intel", "host"]
    names: tuple[str, ...]
    memory_bytes: int
    usable_bytes: int
    bandwidth: float
    peak: Mapping[str, float]
    best: Mapping[str, float]
    link: str
    link_bandwidth: float
    domain: int
    pcie_bandwidth: float
    watts: float
    attention: tuple[str, ...]
    has_peer_to_peer: bool
    evidence: tuple[Evidence, ...]
    source: str
    is_usable_logged: bool = True

    @property
    def is_host(self) -> bool:
        """True if it is a machine's own CPU and its memory the machine's (jobs.planner.memory.cpu)."""
        return self.vendor == "host"

    @property
    def has_bf16(self) -> bool:
        """True if it computes in bfloat16."""
        return "bf16" in self.peak

    @property
    def has_fp8(self) -> bool:
        """True if it multiplies matrices in fp8."""
        return "fp8" in self.peak


_GIB = 1 << 30
_USABLE = {"usable_gib", "usable_share"}
_KEYS = {
    *("label", "vendor", "names", "memory_gb", "bandwidth_tb_s", "link", "link_gb_s", "domain", "pcie_gb_s", "watts"),
    *("attention", "peer_to_peer", "evidence", "source", "peak_tflops"),
}


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Return every accelerator by id. Raises: ValueError, naming the file, for one badly written."""
    return {name: _accelerator(name, table) for name, table in folder_tables("accelerators").items()}


def find_accelerator(name: str, *, usable_bytes: int = 0) -> Accelerator:
    """Return the accelerator that goes by a name: an id, Ray's accelerator type, NVML's name, or what people type.

    Spaces, dashes and case do not matter. Where several share the name, as "A100" does, it is the one whose memory is
    nearest to `usable_bytes`, or without that the one whose own name it is; of two alike the one with the faster link.
    Raises: LookupError, naming the nearest, or all if none is near.
    """
    wanted = _plain(name)
    matches = _by_name().get(wanted, ())
    if not matches:
        near = difflib.get_close_matches(wanted[:200], _by_name(), n=1)
        if not near:
            text = "{name!r} is not a known accelerator. The known ones are {known}."
            raise LookupError(Sentence(text, name=name, known=", ".join(sorted(accelerators()))))
        text = "{name!r} is not a known accelerator. The nearest is {nearest}."
        own = _by_name()[near[0]][0]
        raise LookupError(Sentence(text, name=name, nearest=f"{own.id} ({own.label})"))
    if usable_bytes:
        return min(matches, key=lambda each: (abs(each.usable_bytes - usable_bytes), -each.link_bandwidth))
    return matches[0]


@cache
def _by_name() -> Mapping[str, tuple[Accelerator, ...]]:
    """Return the accelerators of every name: first the one whose own name it is, then by the speed of the link."""
    by_name: dict[str, dict[str, Accelerator]] = {}
    fastest_first = sorted(accelerators().values(), key=lambda each: -each.link_bandwidth)
    for own in (True, False):
        for each in fastest_first:
            names = (each.id, each.label, each.names[0]) if own else each.names
            for name in names:
                by_name.setdefault(_plain(name), {})[each.id] = each
    return {name: tuple(several.values()) for name, several in by_name.items()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower()).removeprefix("nvidia")


def _accelerator(accelerator_id: str, table: Mapping[str, Any]) -> Accelerator:
    keys = set(table)
    if len(keys & _USABLE) != 1 or keys - _USABLE - {"best_tflops"} != _KEYS:
        wrong = ", ".join(sorted(keys - _USABLE - {"best_tflops"} ^ _KEYS)) or "usable_gib or usable_share"
        raise ValueError(f"{accelerator_id}: wrong or missing: {wrong}.")
    usable_gib = table.get("usable_gib") or table["memory_gb"] * table["usable_share"]
    return Accelerator(
        id=accelerator_id,
        label=table["label"],
        vendor=table["vendor"],
        names=tuple(table["names"]),
        memory_bytes=table["memory_gb"] * 10**9,
        usable_bytes=round(usable_gib * _GIB),
        bandwidth=table["bandwidth_tb_s"] * 1e12,
        peak={kind: rate * 1e12 for kind, rate in table["peak_tflops"].items()},
        best={kind: rate * 1e12 for kind, rate in table.get("best_tflops", {}).items()},
        link=table["link"],
        link_bandwidth=table["link_gb_s"] * 1e9,
        domain=table["domain"],
        pcie_bandwidth=table["pcie_gb_s"] * 1e9,
        watts=table["watts"],
        attention=tuple(table["attention"]),
        has_peer_to_peer=table["peer_to_peer"],
        evidence=tuple(table["evidence"]),
        source=table["source"],
        is_usable_logged="usable_gib" in table,
    )
