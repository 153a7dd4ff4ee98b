"""What an attempt runs on and with is told once, of the interpreter that has the trainer."""

import importlib.metadata
import socket
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from jobs.runner import surroundings as module
from jobs.runner.surroundings import surroundings, tell_surroundings


def test_node_devices_packages_and_code_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    monkeypatch.setattr(module, "device_names", lambda: ["H100", "H100"])
    monkeypatch.setattr(module, "driver_version", lambda: "550.54")

    tell_surroundings(lambda text, meta: told.append((text, meta)), python=sys.executable).join()

    ((text, meta),) = told
    found = meta["environment"]
    assert (found["node"], found["devices"], found["driver"]) == (socket.gethostname(), ["H100", "H100"], "550.54")
    assert found["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert len(found["code"]) == 16
    assert f"On {socket.gethostname()}: {found['cores']} cores of" in text
    assert "2 × H100, driver 550.54, Python" in text


def test_an_interpreter_that_does_not_run_costs_its_packages_only() -> None:
    found = surroundings(python="/nowhere/python")

    assert (found["python"], found["packages"]) == ("", {})
    assert found["node"]
