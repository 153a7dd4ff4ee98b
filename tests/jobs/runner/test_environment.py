"""The interpreter of another trainer is looked at before anything starts; what is missing is said with the way out."""

import json
import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, Trainer
from jobs.runner.captures.attachable import RAY_JOB, VARIABLE, attach_environment
from jobs.runner.environment import TrainerMissing, check_services, environment_for, interpreter, without_secrets

ASKED = Trainer(name="openrlhf", version="0.10.1")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment without packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    return folder / "bin" / "python"


def with_package(python: Path, version: str) -> Path:
    """Make the environment have OpenRLHF, as far as its metadata say."""
    (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
    for earlier in packages.glob("openrlhf-*"):
        (earlier / "METADATA").unlink()
        earlier.rmdir()
    if version:
        info = packages / f"openrlhf-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: openrlhf\nVersion: {version}\n")
    return python


@pytest.mark.parametrize("version", ["0.10.1", "0.10.1.post2", "0.10.1+cu128"])
def test_the_declared_interpreter_is_used_if_it_has_the_version(empty: Path, version: str) -> None:
    python = with_package(empty, version)

    assert interpreter(ASKED, declared=f"openrlhf-0.10.1={python}", own_python=sys.executable) == str(python)
    assert interpreter(ASKED, declared="", own_python=str(python)) == str(python)
    assert interpreter(ASKED, declared="openrlhf=image:some/image", own_python=str(python)) == str(python)


def test_a_logger_without_its_package_is_named_before_anything_starts(empty: Path) -> None:
    def asked(*services: str) -> RunSpec:
        knobs = {"logging.services": ",".join(services)}
        return parse_spec({"trainer": {"name": "trl"}, "algorithm": "sft", "knobs": knobs})

    check_services(asked(), "/no/such/python")  # nothing is asked where nothing is needed
    check_services(asked("tensorboard"), sys.executable)
    with pytest.raises(TrainerMissing, match="Install wandb, mlflow there"):
        check_services(asked("wandb", "mlflow"), str(empty))


def test_the_built_in_trainer_needs_no_declaration() -> None:
    assert interpreter(Trainer(), declared="nonsense", own_python="/its/own") == "/its/own"


@pytest.mark.parametrize(
    ("has", "declared", "sentence"),
    [
        ("", "openrlhf={python}", "{python}, where PITWALL_TRAINERS declares it, has no openrlhf"),
        ("0.11.2", "openrlhf-0.10.1={python}", "{python}, where PITWALL_TRAINERS declares it, has openrlhf 0.11.2"),
        ("0.11.2", "openrlhf=installed", "The runner's own environment, where PITWALL_TRAINERS declares it"),
        ("", "verl-0.9.1=/x/python", "PITWALL_TRAINERS declares verl-0.9.1, and the runner's own environment has no"),
        (
            "",
            "openrlhf=/no/such/python",
            "at /no/such/python (PITWALL_TRAINERS), and there is no such file",
        ),
        ("", "openrlhf={folder}/broken", "this interpreter does not run (no luck)"),
    ],
)
def test_what_is_missing_is_said_with_the_way_out(
    empty: Path, tmp_path: Path, has: str, declared: str, sentence: str
) -> None:
    python = with_package(empty, has)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    broken.chmod(0o755)
    names = {"python": python, "folder": tmp_path}

    with pytest.raises(TrainerMissing) as missing:
        interpreter(ASKED, declared=declared.format(**names), own_python=str(python))

    text = str(missing.value)
    assert sentence.format(**names) in text
    assert "OpenRLHF 0.10.1" in text
    assert "make trainer-env TRAINER=openrlhf VERSION=0.10.1" in text


def test_a_declaration_that_makes_no_sense_is_said_as_it_is() -> None:
    with pytest.raises(TrainerMissing, match="PITWALL_TRAINERS names a trainer 'nobody'"):
        interpreter(ASKED, declared="nobody=/x", own_python=sys.executable)


def test_another_trainer_is_not_told_that_it_is_rays_driver() -> None:
    environ = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1", "RAY_ADDRESS": "127.0.0.1:6379"}

    theirs = environment_for(parse_spec({"trainer": {"name": "verl"}}), environ, Path("/runs/r/a1"))
    assert theirs["RAY_ADDRESS"] == "127.0.0.1:6379"
    assert not any(name in theirs for name in environ if name != "RAY_ADDRESS")
    assert environment_for(parse_spec({}), environ, Path("/runs/r/a1")) == environ


def test_processes_of_another_trainer_and_its_ray_workers_are_told_where_requests_are() -> None:
    job = {"runtime_env": {"working_dir": "gcs://x.zip", "env_vars": {"PITWALL_RUN": "r", "PYTHONPATH": "/mine"}}}
    environ = {RAY_JOB: json.dumps(job), "PYTHONPATH": "/before"}

    told = attach_environment(environ, Path("/runs/r/a1"))

    folder, _, rest = told["PYTHONPATH"].partition(":")
    assert (Path(folder) / "sitecustomize.py").is_file()
    assert rest == "/before"
    assert told[VARIABLE] == "/runs/r/a1/attach"
    assert json.loads(told[RAY_JOB]) == {
        "runtime_env": {
            "working_dir": "gcs://x.zip",
            "env_vars": {"PITWALL_RUN": "r", "PYTHONPATH": f"{folder}:/mine", VARIABLE: "/runs/r/a1/attach"},
        }
    }
    image = {RAY_JOB: json.dumps({"runtime_env": {"image_uri": "some/image"}})}
    assert attach_environment(image, Path("/r"))[RAY_JOB] == image[RAY_JOB]
    assert attach_environment({RAY_JOB: "[]"}, Path("/r"))[RAY_JOB] == "[]"


def test_a_torch_that_another_hook_of_imports_finds_is_found_by_it(tmp_path: Path) -> None:
    """As an editable installation has it: its finder may come right after ours, which leaves the list meanwhile."""
    program = """
    import sys
    from importlib.machinery import ModuleSpec
    class Theirs:
        def find_spec(self, name, path=None, target=None):
            return ModuleSpec(name, self) if name == "torch" else None
        def create_module(self, spec): return None
        def exec_module(self, module): module.is_theirs = True
    assert type(sys.meta_path[0]).__name__ == "_Noticing"
    sys.meta_path.insert(1, Theirs())
    import torch
    assert torch.is_theirs
    assert type(sys.meta_path[0]).__name__ == "Theirs"
    """
    environ = attach_environment(os.environ, tmp_path)
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environ, check=True, timeout=120)


def test_a_program_finds_no_secret_by_name_or_value_and_a_short_one_takes_nothing_else_along() -> None:
    environ = {
        "PITWALL_TOKEN": "t" * 32,
        "PITWALL_URL": "http://console",
        "PITWALL_MERGE_KEY": "k" * 64,
        "RAY_AUTH_TOKEN": "bin",
        "HF_TOKEN": "hf_" + "h" * 20,
        RAY_JOB: json.dumps({"runtime_env": {"env_vars": {"PITWALL_TOKEN": "t" * 32}}}),
        "PATH": "/usr/bin",
    }

    assert without_secrets(environ) == {"HF_TOKEN": environ["HF_TOKEN"], "PATH": "/usr/bin"}
    assert without_secrets(environ, "HF_TOKEN") == {"PATH": "/usr/bin"}
