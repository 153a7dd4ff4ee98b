"""The house's rules that a machine can check: import contracts, which side lives without what, sizes of files."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 600
MAX_COLUMNS = 120  # of a template; ruff has the same for Python
GPU_SIDE = ("torch", "ray", "deepspeed", "vllm", "transformers", "tokenizers", "datasets", "nvtx", "pynvml")
WEB_SIDE = ("django", "celery", "channels", "redis", "ninja", "environ")
MACHINE_PATHS = re.compile(r"/(work|root|opt)/|/home/\w+/")
TEXT_SUFFIXES = {
    ".py",
    ".toml",
    ".md",
    ".html",
    ".css",
    ".js",
    ".in",
    ".lock",
    ".txt",
    ".yml",
    ".yaml",
    ".sh",
    ".json",
    "",
}


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks and that are there."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def own_code(path: Path) -> bool:
    return "vendor" not in path.parts and "migrations" not in path.parts


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )


def poison(names: tuple[str, ...]) -> str:
    return f"import sys\nfor name in {names!r}: sys.modules[name] = None\n"


def test_imports_keep_the_contracts() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_web_side_starts_without_any_gpu_library() -> None:
    started = "console.urls, console.asgi, console.celery, jobs.processes.tasks, jobs.processes.reconcile"
    done = run_python(
        poison(GPU_SIDE)
        + "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings'\n"
        + "import django; django.setup()\n"
        + f"import {started}, jobs.ingest.process, jobs.runs.queries\n"
        + "from django.urls import get_resolver; get_resolver().url_patterns\n"
    )
    assert done.returncode == 0, done.stderr


CLUSTER_SIDE = ("profiling", "jobs/catalog", "jobs/adapters", "jobs/runner", "jobs/engine", "jobs/box")
# What takes seconds to import, itself or through what it imports, is left out; the import contracts still cover it.
IMPORT_ALL = """
import importlib
left_out = []
for name in modules:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in slow:
            raise
        left_out.append(name)
print(len(modules) - len(left_out))
"""


def test_the_cluster_side_lives_without_the_web_side() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in CLUSTER_SIDE
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
    ]
    slow = ("torch", "vllm", "deepspeed", "ray", "transformers", "peft")
    done = run_python(f"{poison((*WEB_SIDE, *slow))}modules, slow = {modules!r}, {slow!r}\n{IMPORT_ALL}")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 0.8 * len(modules), "too many are left out"


def test_can_it_run_is_answered_on_the_command_line_without_what_pages_and_runs_need() -> None:
    """They would take as long to load as the answer takes."""
    done = run_python(
        poison(("ninja", "httpx", "redis", "numpy", "duckdb"))
        + "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings'\n"
        + "from django.core.management import call_command\n"
        + "import django; django.setup()\n"
        + "call_command('can_it_run', 'qwen2.5-7b', on=['h100'])\n"
    )
    assert done.returncode == 0, done.stderr
    assert "It runs from" in done.stdout


def test_the_trial_process_starts_without_torch() -> None:
    done = run_python(
        poison(("torch", "vllm", "deepspeed", "ray", *WEB_SIDE)) + "import jobs.engine.preflight.process\n"
    )
    assert done.returncode == 0, done.stderr


def test_no_file_has_grown_too_long() -> None:
    code = [path for path in tracked("*.py", "*.js") if own_code(path)]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in code}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_line_of_a_template_is_too_long_to_be_read() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("templates/*.html")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > MAX_COLUMNS
    ]
    assert long == []


def test_package_files_are_empty_but_that_in_which_django_looks_for_models() -> None:
    filled = [
        str(path.relative_to(ROOT)) for path in tracked("*__init__.py") if own_code(path) and path.read_text().strip()
    ]
    assert filled == ["jobs/models/__init__.py"]


def test_nothing_tracked_names_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked()
        if path.suffix in TEXT_SUFFIXES and own_code(path) and path != Path(__file__)
        for match in MACHINE_PATHS.finditer(path.read_text(errors="ignore"))
    ]
    assert not found


SHARED_CLASS_NAMES = {
    "Command": "Django asks for it in each file of management/commands",
    "Plugin": "what a file of a plugin folder gives is one concept",
}


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in tracked("console/*.py", "jobs/*.py", "profiling/*.py"):
        if own_code(path):
            for name in re.findall(r"^class (\w+)[(:\[]", path.read_text(encoding="utf-8"), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in SHARED_CLASS_NAMES} == {}
    assert set(SHARED_CLASS_NAMES) <= set(several)


def test_no_file_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils.py", "helpers.py", "common.py", "misc.py", "manager.py", "base.py", "core.py"}
    assert not [str(path.relative_to(ROOT)) for path in tracked("*.py") if path.name in empty_names]


TRAINERS = {path.parent.name for path in tracked("jobs/adapters/*/trainer.toml")} - {"native"}
MAY_NAME_A_TRAINER = (
    *(f"jobs/adapters/{name}/" for name in TRAINERS),
    "requirements/trainers/",  # locks, and what stands in for CUDA where a trainer is tried on CPU
    "tests/",
)
CITATION = re.compile(r"^\s*source=")  # of a rule of diagnosis: whose finding its threshold is


def test_no_code_outside_a_trainer_s_folder_names_it() -> None:
    """What differs between trainers is asked of their folders (docs/develop/add-a-trainer.md)."""
    named = re.compile("|".join(rf"(?<![a-z]){name}(?![a-z])" for name in TRAINERS), re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked("*.py", "*.js", "*.html")
        if own_code(path) and not str(path.relative_to(ROOT)).startswith(MAY_NAME_A_TRAINER)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if named.search(line) and not CITATION.match(line)
    ]
    assert len(TRAINERS) > 1
    assert not found


def test_the_built_in_trainer_is_asked_for_by_one_name() -> None:
    """`jobs.catalog.trainer.BUILT_IN`, or `RunSpec.is_native`: what it alone can do is found by who uses that."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in tracked("jobs/**/*.py", "console/**/*.py")
        if '"native"' in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare) and "native" in names_asked_for(node)
    ]
    assert not found


ALGORITHMS = frozenset(tomllib.loads((ROOT / "jobs/catalog/algorithms.toml").read_text(encoding="utf-8")))
MAY_NAME_AN_ALGORITHM = (
    "jobs/engine/algorithms/",
    *(f"jobs/adapters/{name}/" for name in TRAINERS),  # what the trainer calls it
    "console/views/can_it_run/",  # its methods have names of their own, such as sft-lora
    "tests/",
)


def test_no_code_asks_for_an_algorithm_by_name() -> None:
    """What differs between algorithms is asked of their families and of their files."""
    quoted = re.compile("|".join(rf"""["'`]{name}["'`]""" for name in ALGORITHMS))
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in tracked("*.py")
        if own_code(path) and not str(path.relative_to(ROOT)).startswith(MAY_NAME_AN_ALGORITHM)
        if quoted.search(text := path.read_text(encoding="utf-8"))  # parsing all takes seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare | ast.Dict | ast.MatchValue) and names_asked_for(node) & ALGORITHMS
    ]
    found += [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("*.js", "*.html")
        if own_code(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if quoted.search(line)
    ]
    assert not found


def names_asked_for(node: ast.Compare | ast.Dict | ast.MatchValue) -> set[object]:
    """Return the texts that a value is compared with, in a comparison, a `match` or the keys of a table."""
    if isinstance(node, ast.Dict):
        return {key.value for key in node.keys if isinstance(key, ast.Constant)}
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.value]
    return {each.value for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)}


def test_scripts_import_downwards_and_export_nothing_unused() -> None:
    """What one page's folder holds is that page's alone; what pages share stands in charts/, timeline/ or beside it."""
    root = ROOT / "static" / "js"
    texts = {path: path.read_text(encoding="utf-8") for path in tracked("static/js/*.js")}
    pages = {path.relative_to(root).parts[0] for path in texts if path.parent != root} - {"charts", "timeline"}
    sideways, used = [], set()
    for path, text in texts.items():
        for names, target in re.findall(r'import\s+([^;]*?)\s+from\s+"(\.[^"]+)"', text):
            to = (path.parent / target).resolve()
            if "vendor" in to.parts:
                continue
            own = path.relative_to(root).parts[0].removesuffix(".js")
            room = to.relative_to(root).parts[0]
            if room in pages and room != own:
                sideways.append(f"{path.relative_to(root)} imports {to.relative_to(root)}")
            words = re.findall(r"\w+", names)
            if words[:1] == ["as"]:  # import * as numbers
                words = re.findall(rf"\b{words[1]}\.(\w+)", text)
            used |= {(to, word) for word in words}
    exported = {
        (path, name)
        for path, text in texts.items()
        for name in re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, re.MULTILINE)
    }

    assert sideways == []
    assert sorted(f"{path.name}: {name}" for path, name in exported - used) == []
