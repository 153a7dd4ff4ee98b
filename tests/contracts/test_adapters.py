"""What every trainer's folder promises, held over all folders that have a `trainer.toml`.

How a trainer's random specs are drawn stands in `tests/conformance/<trainer>_specs.py`; one that reads the RunSpec
itself needs none.
"""

import ast
import importlib.util
import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.adapter import Adapter, adapter
from jobs.adapters.inputs import Inputs
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import applicable, default_values, is_live, knobs
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import changed
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.placement import Placement
from jobs.catalog.spec.runspec import Hardware, RunSpec, to_json
from jobs.catalog.trainer import part, trainers
from jobs.planner.job import Layout
from jobs.planner.read.spec import read_job
from jobs.planner.search.layout_space import spaces_of
from jobs.planner.search.plan_changes import Situation
from jobs.planner.trainer import TrainerPlanning
from jobs.planner.validation import validate
from profiling.events import to_line
from profiling.phases import ROLES
from tests.jobs.planner.hardware import fleet, models_for
from tests.versions import newest_first

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ROOT / "jobs" / "adapters"
RUN_DIR = Path("/srv/runs/a run/a1")
SOON = 15.0  # seconds on a busy machine
NAMES = tuple(trainers())
ALL_VERSIONS = [(name, version) for name, info in trainers().items() for version in info.versions]
VERSIONS = newest_first(ALL_VERSIONS, of=itemgetter(0))
OTHERS = newest_first([each for each in ALL_VERSIONS if trainers()[each[0]].package], of=itemgetter(0))
TRIES = 6  # draws in which a knob that is wanted may be switched off by another
FOUR = 4  # knobs that a drawn spec gets on purpose


def base(trainer: str, version: str, algorithm: str) -> RunSpec:
    """Return what the form starts with: the trainer's own defaults on a model and data of somebody's."""
    source = {"kind": "path", "id": "/srv/data/train.parquet", "messages_column": "messages"}
    if trainers()[trainer].messages_through or is_in(algorithm, "rl"):
        del source["messages_column"]
    raw = {"algorithm": algorithm, "trainer": {"name": trainer, "version": version}, "data": source}
    return parse_spec(raw | {"model": {"kind": "path", "id": "/srv/models/a"}})


@cache
def specs_of(trainer: str, version: str) -> tuple[RunSpec, ...]:
    """Return a spec per algorithm, the recipes, and random ones until every knob that can be drawn has been."""
    info = trainers()[trainer]
    algorithms = [name for name in info.algorithms if info.offers(name, version)]
    found = [base(trainer, version, name) for name in algorithms]
    found += [
        one.spec
        for one in recipes().values()
        if (one.spec.trainer.name, one.spec.trainer.version) == (trainer, version)
    ]
    return (*found, *drawn_of(trainer, version))


@cache
def drawn_of(trainer: str, version: str) -> tuple[RunSpec, ...]:
    name = f"tests.conformance.{trainer}_specs"
    if importlib.util.find_spec(name) is None:
        return ()
    module, info, rng = importlib.import_module(name), trainers()[trainer], random.Random(version)
    found: list[RunSpec] = []
    seen: set[str] = set()
    for algorithm in (name for name in info.algorithms if info.offers(name, version)):
        tried: Counter[str] = Counter()
        here = {k: knob for k, knob in applicable(algorithm, trainer, version).items() if module.reachable(knob)}
        while left := [k for k in here if k not in seen and tried[k] < TRIES]:
            fresh = [knob_id for knob_id in left if not tried[knob_id]][:FOUR]
            wanted = fresh or left[:1]  # what others have switched off is wanted alone the next time
            spec = module.drawn(version, algorithm, rng, wanted)
            found.append(spec)
            tried.update(wanted)
            seen |= {knob_id for knob_id in spec.knobs if is_set(spec, knob_id)}
    return tuple(found)


def is_set(spec: RunSpec, knob_id: str) -> bool:
    """Return True if a knob means something and is not as it would be anyway."""
    defaults = default_values(spec.algorithm, spec.trainer.name, spec.trainer.version)
    return spec.knob(knob_id) != defaults[knob_id] and is_live(knob_id, spec.values())


def argv_of(spec: RunSpec) -> tuple[str, ...]:
    return adapter(spec.trainer.name).command(spec=spec, run_dir=RUN_DIR, python="python", device="cuda").argv


# -- the folder --


@pytest.mark.parametrize("trainer", NAMES)
def test_a_folder_has_each_part_that_is_asked_for_by_name(trainer: str) -> None:
    parts: tuple[Adapter, Inputs, Placement, TrainerPlanning] = (
        part(trainer, "adapter"),
        part(trainer, "inputs"),
        part(trainer, "placement"),
        part(trainer, "planning"),
    )

    assert isinstance(parts[0], Adapter)
    assert parts[1].suffix in ("jsonl", "parquet")
    for one, protocol in zip(parts[2:], (Placement, TrainerPlanning), strict=True):
        assert [name for name in vars(protocol) if not name.startswith("_") and not hasattr(one, name)] == []


@pytest.mark.parametrize("trainer", NAMES)
def test_a_trainer_knows_no_other(trainer: str) -> None:
    others = tuple(f"jobs.adapters.{name}" for name in NAMES if name != trainer)
    imports = []
    for file in sorted((FOLDERS / trainer).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imports.append(node.module)
            elif isinstance(node, ast.Import):
                imports += [alias.name for alias in node.names]

    assert [name for name in imports if name.startswith(others)] == []


@pytest.mark.parametrize("trainer", NAMES)
def test_a_trainer_says_how_people_name_it_and_for_which_algorithms(trainer: str) -> None:
    info = trainers()[trainer]

    assert info.label
    assert info.help
    assert info.source
    for version in info.versions:
        assert [name for name in info.algorithms if info.offers(name, version)]
    assert set(info.needs_gpu) <= set(info.algorithms)
    assert set(info.algorithm_since) <= set(info.algorithms)


# -- the command --


@pytest.mark.parametrize(("trainer", "version"), VERSIONS)
def test_equal_specs_give_equal_bytes(trainer: str, version: str) -> None:
    devices = cycle(("auto", "cpu", "cuda"))
    for spec, device in zip(specs_of(trainer, version), devices, strict=False):
        first, second = (
            adapter(trainer).command(spec=each, run_dir=RUN_DIR, python="/env/bin/python", device=device)
            for each in (spec, parse_spec(to_json(spec)))
        )
        assert first == second


@pytest.mark.parametrize(("trainer", "version"), VERSIONS)
def test_a_launch_is_a_vector_and_files_below_the_run_directory(trainer: str, version: str) -> None:
    for spec in specs_of(trainer, version):
        launch = adapter(trainer).command(spec=spec, run_dir=RUN_DIR, python="/env/bin/python", device="cuda")
        assert launch.argv[0] == "/env/bin/python"
        texts = [*launch.argv, *launch.env, *launch.env.values()]
        assert [text for text in texts if not isinstance(text, str) or "\0" in text] == []
        assert [name for name in launch.files if Path(name).is_absolute() or ".." in Path(name).parts] == []


@pytest.mark.parametrize(("trainer", "version"), OTHERS)
def test_every_knob_is_written_and_read_back(trainer: str, version: str) -> None:
    seen: set[str] = set()
    for spec in drawn_of(trainer, version):
        result = adapter(trainer).read_back(arguments=argv_of(spec), version=version)
        again = parse_spec(result.spec)
        assert [(each.option, each.why) for each in (*result.left_out, *result.unread)] == []
        assert again.trainer == spec.trainer
        assert again.algorithm == spec.algorithm
        values = spec.values()
        assert {k: again.knob(k) for k in spec.knobs if is_live(k, values)} == {
            k: spec.knob(k) for k in spec.knobs if is_live(k, values)
        }
        seen |= {knob_id for knob_id in spec.knobs if is_set(spec, knob_id)}
    module = importlib.import_module(f"tests.conformance.{trainer}_specs")
    info = trainers()[trainer]
    here = {
        knob_id: knob
        for name in info.algorithms
        if info.offers(name, version)
        for knob_id, knob in applicable(name, trainer, version).items()
    }
    assert [knob_id for knob_id, knob in here.items() if knob_id not in seen and module.reachable(knob)] == []


@pytest.mark.parametrize(("trainer", "version"), OTHERS)
def test_a_command_read_back_and_written_again_is_the_same_command(trainer: str, version: str) -> None:
    named = [spec for spec in drawn_of(trainer, version) if names_all_of_its_files(spec)][:40]

    assert named
    for spec in named:
        result = adapter(trainer).read_back(arguments=argv_of(spec), version=version)
        assert argv_of(parse_spec(result.spec)) == argv_of(spec)


def names_all_of_its_files(spec: RunSpec) -> bool:
    """Return True if nothing of the spec is written below the run directory, whose files belong to one run."""
    has_own_reward = not is_in(spec.algorithm, "rl") or spec.reward.kind in ("file", "url", "model")
    return spec.model.kind != "bundled" and spec.data.kind in ("path", "hub") and has_own_reward


@pytest.mark.parametrize(("trainer", "version"), OTHERS)
def test_an_unknown_option_is_named(trainer: str, version: str) -> None:
    spec = next(spec for spec in drawn_of(trainer, version))
    here = applicable(spec.algorithm, trainer, version)
    flags = [knob.flag(trainer=trainer, version=version, algorithm=spec.algorithm) for knob in here.values()]
    names = {name for flag in flags if flag is not None for name in flag.names}
    argv = list(argv_of(spec))
    place = max(at for at, text in enumerate(argv) if text.partition("=")[0] in names)
    name = argv[place].partition("=")[0]
    argv[place] = argv[place].replace(name, f"{name}_that_nobody_has", 1)

    result = adapter(trainer).read_back(arguments=argv, version=version)

    (named,) = [each for each in result.unread if "that_nobody_has" in each.option]
    assert named.why


@pytest.mark.parametrize(("trainer", "version"), VERSIONS)
def test_each_option_beside_the_knobs_says_what_it_holds_or_why_it_stays_behind(trainer: str, version: str) -> None:
    sections = {name: value for name, value in to_json(parse_spec({})).items() if isinstance(value, dict)}
    known = {*knobs(), "algorithm", "name", *(f"{name}.{field}" for name in sections for field in sections[name])}
    for option in adapter(trainer).option_names(version=version):
        assert option.spec_fields or option.why, option
        assert set(option.spec_fields) <= known, option


# -- hostile texts --


def _aliases() -> str:
    rows = ["a: &a0 [x,x,x,x,x,x,x,x,x]"]
    rows += [f"b{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    return "\n".join(rows)


def _nested(program: str) -> str:
    text = f"# {program}\n"
    for level in range(7):
        text = f"read -r -d '' A <<'E{level}'\n{text}\nE{level}\nx" + ' "$A "' * 12 + "\n"
    return text


def hostile_texts(program: str) -> dict[str, str]:
    """Return texts that take a careless reader for ever, or all memory; each names a program of the trainer."""
    return {
        "aliases": _aliases(),
        "an alias of itself": "a: &a {x: *a}\n",
        "brackets of YAML": "a: " + "[" * 5000,
        "brackets of a value": f"python -m {program} a.b=" + "[" * 20_000,
        "texts in texts": _nested(program),
        "variables": "python -m foo " + " ".join(f"$a{i}" for i in range(10_000)) + ";x" * 40_000,
        "words": f"python -m {program} --x " + "a " * 90_000,
        "a variable many times": "A='a b'\nx " + "$A" * 60_000,
        "a quote without end": f"python -m {program} --x 'a",
        "nothing but control characters": "\x00\x01\x02" * 100,
        "a very long word": "a" + "." * 100_000,
        "nothing": "",
    }


def refusal_of(trainer: str, arguments: Sequence[str]) -> str | None:
    """Return the sentence with which a command, or the spec that it means, is refused; None if it is taken."""
    try:
        parse_spec(adapter(trainer).read_back(arguments=arguments, version="").spec)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("text", hostile_texts("x"))
@pytest.mark.parametrize("trainer", NAMES)
def test_a_hostile_text_is_read_or_refused_in_a_sentence_and_soon(trainer: str, text: str) -> None:
    version = trainers()[trainer].versions[0]
    argv = argv_of(specs_of(trainer, version)[0])
    program = next(argv[at + 1] for at, word in reversed(list(enumerate(argv))) if word == "-m")
    began = time.monotonic()

    refusal = refusal_of(trainer, [hostile_texts(program)[text]])

    assert refusal is None or re.search(r"\w+ \w+", refusal)
    assert time.monotonic() - began < SOON


@given(words=st.lists(st.text(max_size=30), max_size=8))
@pytest.mark.parametrize("trainer", NAMES)
def test_any_words_are_read_or_refused_in_a_sentence(trainer: str, words: Sequence[str]) -> None:
    version = trainers()[trainer].versions[0]
    argv = argv_of(specs_of(trainer, version)[0])

    assert refusal_of(trainer, [*argv[:5], *words]) != ""


# -- logs --

LOGS = ("log/driver-0.stdout", "log/driver-0.stderr", "log/{trainer}.jsonl", "tb/x/events.out.tfevents.1.host")
"""Files that readers of logs look for; one that reads another file adds its name."""

LINES = (
    b"(PPOTrainer pid=812) ppo_trainer.py:551] Global step 3: {'policy_loss': 0.1, 'kl': nan}\n",
    b"(TaskRunner pid=812) step:3 - actor/pg_loss:0.1 - actor/entropy:nan\n",
    b'{"step": 4, "data": {"actor/pg_loss": 0.1, "x": null, "y": [1]}}\n',
    b'{"step": "many", "data": 3}\n{"step": 1e999, "data": {}}\n',
    b"Global step 1: {'a': " + b"9" * 4000 + b"}\nstep:" + b"9" * 5000 + b" - a:1\n",
    b"Train epoch:   0%|          | 0/2 [00:00<?, ?it/s]\rTrain step of epoch 0:   3%|x| 1/32 [00:00<00:09, ...]\n",
    b"Epoch 1/4:   6%|x         | 1/16 [00:03<00:49,  3.32s/it]\rTraining Progress:   1%|  | 1/120 [00:09<18:20]\n",
    b'\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK"\t\x00\x00\xc0\x16t\xdc\xd9A\x1a\rbrain.Event:2\xec\x01\xc3\xb6',
    b"\xff\xfe\x00[[[[{{{{" * 50 + b"\n",
    bytes(range(256)) * 20,
)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(1, 4))])
@pytest.mark.parametrize(("trainer", "version"), VERSIONS)
def test_a_reader_of_logs_survives_garbage_and_lines_cut_anywhere(
    trainer: str, version: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    info = trainers()[trainer]
    for algorithm in (name for name in info.algorithms if info.offers(name, version)):
        run_dir = tmp_path / algorithm
        reader = adapter(trainer).logs(spec=base(trainer, version, algorithm), run_dir=run_dir)
        if reader is None:  # it writes events itself
            continue
        assert list(reader.poll(now_ns=0)) == []
        files = [run_dir / name.format(trainer=trainer) for name in LOGS]
        for now in range(1, 40):
            file = rng.choice(files)
            file.parent.mkdir(parents=True, exist_ok=True)
            line = rng.choice(LINES)
            with file.open("ab") as log:
                log.write(line[: rng.randrange(len(line) + 1)] if rng.random() < 0.5 else line)
            for event in reader.poll(now_ns=now * 10**9):
                to_line(event)  # type: ignore[arg-type]
                assert event["kind"] in ("metric", "note")


# -- captures --


@pytest.mark.parametrize("trainer", NAMES)
def test_a_process_has_a_role_of_the_run_or_is_not_recorded(trainer: str) -> None:
    captures = adapter(trainer).captures
    for version in trainers()[trainer].versions:
        for spec in specs_of(trainer, version):
            for actor in ("", "WorkerDict", "PolicyModelActor", "CriticWorker", "LLMRayActor", "Foo", "x" * 1000):
                assert captures.role_of(spec=spec, actor=actor) in ("", *ROLES)


NAMES_OF_FILES = (
    "actor-rollout-ref_train_step3_rank1-of-4_pid77_20260101120000000.json.gz",
    "step3/torch_memory_rank1_pid77.pickle",
    "rollout-replica1-globalrank3_x.json.gz",
    "critic_rank" + "9" * 40 + "_step" + "9" * 40 + ".json",
    "step3.nsys-rep",
    ".hidden.json",
    "notes.txt",
    "ü ñ 日.json",
    "a/b/c/d/e/f/deep.json",
)


@pytest.mark.parametrize("trainer", NAMES)
def test_a_file_of_a_capture_has_a_worker_and_a_step(trainer: str, tmp_path: Path) -> None:
    captures = adapter(trainer).captures
    assert list(captures.files(run_dir=tmp_path)) == []
    for name in NAMES_OF_FILES:
        path = tmp_path / "profile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    (tmp_path / "profile" / "link.json").symlink_to("/etc/hostname")

    for file in captures.files(run_dir=tmp_path):
        assert file.path.is_relative_to(tmp_path)
        assert not file.path.is_symlink()
        assert file.role in ROLES
        assert (file.size, file.rank >= 0, file.step >= 0) == (5, True, True)


# -- inputs --


@pytest.mark.parametrize(("trainer", "version"), VERSIONS)
def test_rows_of_the_bundled_data_can_be_written_in_the_trainer_s_format(trainer: str, version: str) -> None:
    inputs: Inputs = part(trainer, "inputs")
    row = {"prompt": "1 + 1", "response": "#### 2", "answer": "2", "chosen": "#### 2", "rejected": "#### 3"}
    for algorithm in trainers()[trainer].algorithms:
        if trainers()[trainer].offers(algorithm, version):
            raw = {"algorithm": algorithm, "trainer": {"name": trainer, "version": version}}
            found = inputs.rows(parse_spec(raw), [row])  # of a pair a trainer may make two
            assert json.loads(json.dumps(found)) == found
            assert found
            assert all(found)


# -- placement --


@pytest.mark.parametrize(("trainer", "version"), VERSIONS)
def test_the_pools_add_up_to_the_devices_asked_for_and_hold_every_role(trainer: str, version: str) -> None:
    placement: Placement = part(trainer, "placement")
    for spec in specs_of(trainer, version):
        pools, workers = placement.pools(spec), placement.workers(spec)
        assert sum(pools.values()) == spec.num_workers > 0
        assert workers == spec.workers
        assert all(ranks > 0 for ranks in workers.values())
        held = [role for pool in pools for role in pool.split("+")]
        assert sorted(held) == sorted(set(held))
        assert set(workers) <= set(held)
        assert placement.group(spec, "policy") == workers["policy"]
        if is_in(spec.algorithm, "rl"):
            assert placement.num_engines(spec) == workers.get("vllm", 0)


# -- planning --

RECIPES = [(one.spec.trainer.name, one.id) for one in recipes().values()]


@pytest.mark.parametrize(("trainer", "name"), RECIPES)
def test_a_recipe_is_read_into_a_job_that_can_be(trainer: str, name: str) -> None:
    spec = recipes()[name].spec
    assert spec.trainer.name == trainer

    job = read_job(spec, models_for(spec), fleet(spec.num_workers))

    validate(job)
    assert job.fleet.num_devices == spec.num_workers
    assert job.policy.family in trainers()[trainer].families
    assert (job.engine is not None) == (job.rollouts is not None) == is_in(spec.algorithm, "rl")
    assert (job.critic is not None) == is_in(spec.algorithm, "critic")


@pytest.mark.parametrize(("trainer", "name"), RECIPES)
def test_every_placement_of_a_search_is_taken_and_fits_the_devices(trainer: str, name: str) -> None:
    spec = recipes()[name].spec
    models = models_for(spec)

    spaces = spaces_of(spec, models.policy, fleet(16), sizes=(16, 8))

    assert spaces
    for space in spaces:
        changes = {**space.placement, **space.ways_to_train[0], **space.ways_to_generate[0]}
        after = changed(spec, changes)
        assert read_job(after, models, fleet(16)).fleet.num_devices <= 16
    planning: TrainerPlanning = part(trainer, "planning")
    assert planning.budget_devices(Layout(num_devices=8, tensor=2, context=2)) in (2, 4)


@pytest.mark.parametrize(("trainer", "name"), RECIPES)
def test_changes_that_a_trainer_makes_itself_are_knobs_of_the_run(trainer: str, name: str) -> None:
    spec = recipes()[name].spec
    planning: TrainerPlanning = part(trainer, "planning")
    job = read_job(spec, models_for(spec), fleet(spec.num_workers))
    known = {*spec.knobs, *(f"hardware.{name}" for name in Hardware.model_fields)}

    more = planning.more_devices(Situation(spec=spec, job=job, fleet=fleet(4 * spec.num_workers)))
    none = planning.more_devices(Situation(spec=spec, job=job, fleet=fleet(spec.num_workers)))
    engine: dict[str, Any] = dict(planning.engine_changes(tensor=1, engines=2))

    assert none is None
    assert set(more or ()) <= known
    if is_in(spec.algorithm, "rl"):
        assert set(engine) <= known
