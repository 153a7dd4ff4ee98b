"""The built-in trainer's command line, and the lookup of adapters."""

from pathlib import Path

import pytest

from jobs.adapters.adapter import adapter
from jobs.catalog.spec.parse import parse_spec
from profiling.plugins import UnknownPlugin

RUN_DIR = Path("/runs/r-1/a1")


def test_the_native_trainer_gets_its_run_directory_and_device_as_an_argument_vector() -> None:
    launch = adapter("native").command(spec=parse_spec({}), run_dir=RUN_DIR, python="python3", device="cpu")

    assert launch.argv == ("python3", "-m", "jobs.engine", "/runs/r-1/a1", "--device", "cpu")


def test_a_device_of_the_spec_wins() -> None:
    spec = parse_spec({"hardware": {"device": "cuda"}})

    launch = adapter("native").command(spec=spec, run_dir=RUN_DIR, python="python3", device="cpu")

    assert launch.argv[-2:] == ("--device", "cuda")


def test_auto_leaves_the_choice_to_the_engine() -> None:
    launch = adapter("native").command(spec=parse_spec({}), run_dir=RUN_DIR, python="python3", device="auto")

    assert "--device" not in launch.argv


@pytest.mark.parametrize("name", ["verl-next", "adapter", ""])
def test_an_unknown_trainer_is_named_with_those_there_are(name: str) -> None:
    with pytest.raises(UnknownPlugin, match=f"'{name}' is not one of native"):
        adapter(name)
