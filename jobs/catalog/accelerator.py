"""What is known of accelerators: `accelerators/*.toml`, a file per accelerator; its id is the file's name.

A number without a source is not written. Peak rates are dense (no sparsity). Memory on a label is in 10^9 bytes; what
a framework can use of it is less, and is kept apart in bytes, measured where a log showed it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
    """

    id: str
    label: str
    vendor: Literal["nvidia", "amd", "huawei", "intel"]
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

    @property
    def has_bf16(self) -> bool:
        """True if it computes in bfloat16."""
        return "bf16" in self.peak
