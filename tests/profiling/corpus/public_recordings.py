"""Real recordings that are healthy by what was told of them or by plain figures, on which no rule may be bad.

All but one are public. A figure is taken of the file alone: which share of its steps a device works, how much of its
peak memory is in use, whether each event that begins ends. Recordings of which neither is known are left out, and those
that show a fault: of the public pair one waits for collectives in a fifth of its time, the other multiplies in float32;
the export of nsys copies for 95 % of its second; a program of JAX on eight devices works for 2 % of its steps; of one
on four TPUs three do nothing but copy.
"""

import gzip
from collections.abc import Mapping
from pathlib import Path

from profiling.evidence import Evidence
from tests.profiling.corpus.evidence import Bench

DATA = Path(__file__).parents[2] / "data"
HEALTHY_FILES: Mapping[str, str] = {
    "traces/h200_ahead.json.gz": "our own: launches that run ahead of a busy H200",
    "formats/xplane_gpu_te_fused_attn.xplane.pb.gz": "JAX on one GPU, which works for 92.6 % of four steps",
    "formats/torch_memory_snapshot_small.pickle.gz": "86 % of what is reserved at the peak is in use",
    "formats/torch_memory_snapshot_train.pickle.gz": "98 % of what is reserved at the peak is in use",
    "formats/torch_memory_snapshot_forward_bf16.pickle.gz": "91 % of what is reserved at the peak is in use",
    "formats/torch_memory_snapshot_slime_init_model.pickle.gz": "99 % of what is reserved at the peak is in use",
    "formats/slime_phase_timeline_chrome.json.gz": "phases of slime, each with an end",
    "formats/chrome_cpu_only_timeline.json.gz": "a browser, no device: all events have an end",
    "formats/chrome_trace_events_multiprocess.json": "several processes, each begin with its end",
    "formats/rocprofv3_doc_hip_trace.csv": "the documentation's own example, whole",
    "formats/rocprofv3_doc_marker_api_trace.csv": "the documentation's own example, whole",
    "formats/otlp_trace.json": "the specification's own example, whole",
    "formats/perfetto_track_event_nested.pftrace.gz": "a test of Perfetto's own, whole",
    "formats/speedscope_0_0_1_evented.speedscope.json": "a valid sample of speedscope",
    "formats/speedscope_0_6_0_two_sampled.speedscope.json": "a valid sample of speedscope",
}
"""By path in tests/data: why it counts as healthy."""


def public(name: str, bench: Bench) -> Evidence:
    """Return one of them as evidence, imported as a file that somebody brings."""
    is_packed = name.endswith(".pickle.gz")  # to be small here; as people have it, a snapshot is not
    file = bench.path(Path(name).stem if is_packed else Path(name).name)
    packed = (DATA / name).read_bytes()
    file.write_bytes(gzip.decompress(packed) if is_packed else packed)
    return bench.of_files(file, role="")
