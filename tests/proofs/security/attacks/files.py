"""L1, L2: files that take more work than they are long. Read by the same code in every topology, so once is enough."""

import gzip
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.site import Site

ROOT = Path(__file__).resolve().parents[4]
HEAD_SECONDS = 0.05
PICKLE_SECONDS = 10


@attack("L1", is_local=True)
def a_gzip_of_empty_members(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """One MiB of them: the web process looks at the head of what arrives."""
    del site, scene
    with tempfile.NamedTemporaryFile() as file:
        member = gzip.compress(b"", mtime=0)
        file.write(member * ((1 << 20) // len(member)))
        file.flush()
        code = (
            "import sys, time; from pathlib import Path; from profiling.trace.formats.unpack import head\n"
            "began = time.process_time(); head(Path(sys.argv[1])); print(time.process_time() - began)"
        )
        done = _python(code, file.name, seconds=60)
    seconds = float(done.stdout.split()[-1])
    got = "" if seconds < HEAD_SECONDS else f"{seconds:.2f} s of CPU"
    return outcome("1 MiB of empty gzip members", stopped_by=f"{seconds * 1000:.0f} ms of CPU", got=got)


@attack("L2", is_local=True)
def a_pickle_of_lists_of_itself(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Six hundred bytes that say two to the power of sixty times the same."""
    del site, scene
    rows: list[Any] = ["x" * 10]
    for _ in range(60):
        rows = [rows, rows]
    told = {"version": "2.10", "pg_config": {"0": {"ranks": rows}}, "pg_status": {}, "entries": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nccl_trace_rank_0"
        path.write_bytes(pickle.dumps(told))
        command = [sys.executable, "-m", "profiling.trace.importing", str(path), f"{folder}/store"]
        # It ends with whoever holds its standard input.
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            child.wait(PICKLE_SECONDS)
        except subprocess.TimeoutExpired:
            return outcome("a pickle that unfolds", stopped_by="", got=f"it was still read after {PICKLE_SECONDS} s")
        finally:
            child.kill()
            printed, _ = child.communicate()
    return outcome("a pickle that unfolds", stopped_by=printed.decode()[-160:].strip())


def _python(code: str, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=True
    )
