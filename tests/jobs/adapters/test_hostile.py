"""Texts and specs that are made to do harm to one trainer; what every trainer takes is in tests/contracts."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.command_line.hydra import read_value, write
from jobs.adapters.logs.tfevents import scalars
from jobs.adapters.openrlhf.logs import printed_step as openrlhf_step
from jobs.adapters.verl.command_reader import command_of
from jobs.adapters.verl.logs import json_step
from jobs.adapters.verl.logs import printed_step as verl_step
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec

SOON = 15.0  # seconds on a busy machine; each took a minute, or for ever
RL = "python -m verl.trainer.main_ppo"


def spec_of(trainer: str, **more: Any) -> RunSpec:
    base = {
        "trainer": {"name": trainer},
        "model": {"kind": "path", "id": "/m"},
        "data": {"kind": "path", "id": "/d.parquet"},
    }
    return parse_spec({**base, **more})


def argv(spec: RunSpec) -> tuple[str, ...]:
    return adapter(spec.trainer.name).command(spec=spec, run_dir=Path("/r"), python="p", device="cuda").argv


def test_thousands_of_strange_options_are_named_soon() -> None:
    began = time.monotonic()
    read = adapter("verl").read_back(arguments=[f"{RL} " + " ".join(f"a{i}.bcdef=1" for i in range(3000))], version="")
    assert len(read.unread) == 3000
    assert time.monotonic() - began < SOON


def test_backslashes_take_time_in_proportion() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="opening quote"):
        read_value("'" + "\\" * 100_000 + "x")
    text = "\\" * 100_000 + "x "
    assert read_value(write(text)) == text
    with pytest.raises(ValueError, match="not a command"):
        command_of(["a" + "." * 5000, "b"])
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    "change",
    [
        {"name": "run ${oc.env:HF_TOKEN}"},
        {"model": {"kind": "path", "id": "/m/${oc.env:HF_TOKEN}"}},
        {"data": {"kind": "path", "id": "/a.parquet,/${oc.env:HF_TOKEN}.parquet"}},
        {"knobs": {"models.tokenizer_path": "${oc.env:HF_TOKEN}"}},
        {"knobs": {"rollout.engine_options": "a: {b: '${oc.env:HF_TOKEN}'}"}},
    ],
)
def test_verl_is_told_nothing_that_it_would_resolve(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"has \$\{ in it"):
        argv(spec_of("verl", **change))


def test_an_escaped_interpolation_is_resolved_by_what_verl_does(monkeypatch: pytest.MonkeyPatch) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    monkeypatch.setitem(os.environ, "PITWALL_TEST_SECRET", "hunter2")
    config = omegaconf.OmegaConf.create({"name": r"\${oc.env:PITWALL_TEST_SECRET}"})
    omegaconf.OmegaConf.resolve(config)  # as verl.trainer.main_ppo does before it reads anything
    assert config.name == "hunter2"  # so escaping is no way out


def test_a_list_of_words_holds_no_option() -> None:
    knobs = {"lora.rank": 8, "lora.target_modules": "q_proj,--train.agent_func_path,/tmp/evil.py"}
    with pytest.raises(ValueError, match="for an option"):
        argv(spec_of("openrlhf", knobs=knobs))


@pytest.mark.parametrize("text", ["cuda; touch /tmp/owned", "$(id)", "cuda nvtx", "`id`"])
def test_what_nsys_traces_is_no_shell_text(text: str) -> None:
    with pytest.raises(SpecInvalid, match="not a list of interfaces"):
        spec_of("verl", knobs={"profiling.nsys_trace": text})


def test_a_large_tensor_is_not_unpacked() -> None:
    def field(number: int, content: bytes) -> bytes:
        size, varint = len(content), bytearray()
        while size > 0x7F:
            varint.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([number << 3 | 2]) + bytes(varint) + bytes([size]) + content

    def event(content: bytes) -> bytes:
        return field(5, field(1, field(1, b"loss") + field(8, b"\x08\x01" + field(4, content))))

    assert [scalar.value for scalar in scalars(event(b"\0\0\0\0"))] == [0.0]
    assert scalars(event(b"\0" * (32 << 20))) == []


def test_a_printed_number_without_end_stops_no_reader() -> None:
    many = "9" * 5000
    assert openrlhf_step(f"Global step {many}: {{'a': 1}}") is None
    assert openrlhf_step("Global step 1: {'a': " + "9" * 4000 + ", 'b': 2}") == (1, {"train/b": 2.0})
    assert verl_step(f"step:{many} - a:1") is None
    assert json_step('{"step": 1, "data": {"a": ' + "9" * 4000 + ', "b": 2}}') == (1, {"b": 2.0})
    assert json_step("[" * 100_000) is None
