"""TensorBoard reads what we write."""

import math
from pathlib import Path

import pytest

from jobs.engine.reporting.tensorboard_log import TensorboardLog, masked_crc


def test_the_checksum_is_crc32c() -> None:
    # CRC-32C of "123456789" is 0xE3069283 (the check value of RFC 3720's polynomial); masked as the format asks.
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_tensorboard_reads_the_scalars_back(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = TensorboardLog(tmp_path)
    for step in range(1, 301):
        log.scalars({"reward/mean": step / 4, "time/step_seconds": math.nan}, step=step)
    log.close()

    found = accumulators.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    found.Reload()

    assert found.Tags()["scalars"] == ["reward/mean", "time/step_seconds"]
    points = found.Scalars("reward/mean")
    assert [(p.step, p.value) for p in points] == [(step, step / 4) for step in range(1, 301)]
