"""The report on other trainers says what was not run, as the catalog has it now."""

from pathlib import Path

from jobs.catalog.trainer import BUILT_IN, trainers
from tests.journeys.other_trainers import RUNS
from tests.proofs.needs_gpu import needs_gpu_lines

REPORT = Path(__file__).parents[2] / "docs" / "proofs" / "trainers.md"


def test_the_report_lists_what_cannot_run_without_gpus() -> None:
    lines = needs_gpu_lines(RUNS)

    assert "\n".join(lines) in REPORT.read_text()
    for info in trainers().values():
        if info.id != BUILT_IN and info.package:
            (line,) = [line for line in lines if line.startswith(f"- **{info.label} ")]
            assert "GPU" in line
    assert "`rollout.backend` vllm, sglang, trtllm" in "".join(lines)
    assert "`parallel.engine` fsdp, megatron" in "".join(lines)
