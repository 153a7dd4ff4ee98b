"""Case files: what is left out has a default, and what is wrong is named with the nearest that is right."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from jobs.catalog.model import models
from tests.planner_cases.held_out import class_of
from tests.planner_cases.load import HERE, CaseInvalid, load
from tests.planner_cases.measure import readings
from tests.planner_cases.model import read_model

CASE = """
[X1]
model = "qwen2.5-0.5b"
accelerator = "h100-sxm"
num_devices = 2
framework = "verl"
policy = { sequence = 1024 }
rollouts = { lengths = { max_response = 512 } }
truth = { peak_gib = 40 }
"""


def _load(folder: Path, text: str) -> tuple:
    (folder / "cases.toml").write_text(text, encoding="utf-8")
    return load(folder)


def test_framework_fills_in_what_a_case_leaves_out(tmp_path: Path) -> None:
    (case,) = _load(tmp_path, CASE)

    assert case.job is not None
    assert case.job.policy.layout.shards == 3
    assert case.job.policy.layout.num_devices == 2
    assert case.job.policy.weight_bytes == 4
    assert case.job.engine is not None
    assert case.job.engine.num_engines == 2
    assert case.job.frozen[0].role == "reference"
    assert case.job.rollouts is not None
    assert case.job.rollouts.prompts == 512
    assert not case.is_for_fitting  # cases that came later only test


def test_a_file_may_bring_its_own_framework_and_model(tmp_path: Path) -> None:
    (case,) = _load(
        tmp_path,
        """
[frameworks.mine]
like = "ms-swift"
counts = "allocated"
[frameworks.mine.policy]
lora_rank = 4

[X1a]
model = { like = "llama-3-70b", name = "short", config = { num_hidden_layers = 12 } }
accelerator = { like = "h100-sxm", memory_gb = 96 }
framework = "mine"
policy = { method = "lora" }
truth = { peak_gb = 40 }
""",
    )

    assert case.model is not None
    assert case.model.num_layers == 12
    assert case.row == "X1"
    assert case.counts == "allocated"
    assert case.fleet is not None
    assert case.fleet.accelerator.memory_bytes == 96e9
    assert case.job is not None
    assert case.job.policy.lora_rank == 4
    assert case.job.policy.family == "plain"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sequence", "sequense", "there is no key policy.sequense. Did you mean sequence?"),
        (
            "num_devices = 2",
            'num_devices = "2"',
            "'2' is not allowed for num_devices. Use a whole number of 0 or more.",
        ),
        ("peak_gib", "peak_gibs", "there is no key truth.peak_gibs. Did you mean peak_gib?"),
        ("peak_gib = 40", "peak_gib = -1", "-1 is not allowed for truth.peak_gib. Use a number above 0."),
        ("peak_gib = 40", 'verdict = "yes"', "'yes' is not allowed for truth.verdict. Use fits or oom."),
        ('"verl"', '"verrl"', "there is no framework 'verrl'. Did you mean verl?"),
        ("sequence = 1024", 'attention = "flash9"', "'flash9' is not allowed for policy.attention. Use eager,"),
        ("max_response = 512", "max_prompt = 512", "rollouts.lengths.max_response is missing."),
        ('"h100-sxm"', '"h1000"', "accelerator: "),
        ("[X1]", "[X1", "this is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(CaseInvalid) as error:
        _load(tmp_path, CASE.replace(old, new, 1))

    assert says in str(error.value)
    assert str(error.value).startswith("cases.toml")


def test_a_model_that_is_not_known_stays_in_the_table_as_not_computed(tmp_path: Path) -> None:
    (case,) = _load(tmp_path, CASE.replace("qwen2.5-0.5b", "qwen9"))

    (reading,) = readings(case)

    assert reading.estimate is None
    assert reading.why == "The catalogue has no model 'qwen9'."
    assert reading.is_right is False


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(CaseInvalid, match="there is no case file"):
        load(tmp_path)


def test_a_config_without_the_null_that_toml_lacks_is_read() -> None:
    config = {key: value for key, value in models()["moonlight-16b-a3b"].config.items() if value is not None}

    shape, read = read_model({"name": "Moonlight", "config": config})
    assert "q_lora_rank" not in config
    assert read["q_lora_rank"] is None
    assert shape.parameters == read_model("moonlight-16b-a3b")[0].parameters


def test_no_id_names_two_cases() -> None:
    """Sources are told apart by it when one is left out, and so are the halves."""
    files = [path for path in HERE.rglob("*.toml") if path.name != "frameworks.toml"]
    ids = Counter(id for path in files for id in tomllib.loads(path.read_text(encoding="utf-8")) if id != "frameworks")

    assert [id for id, count in ids.items() if count > 1] == []


def test_work_that_a_source_does_not_say_is_judged_apart() -> None:
    by_id = {case.id: case for case in load(HERE / "later")}
    assert by_id["VA03"].assumed == ("lengths",)  # no mean of responses
    assert by_id["SR01"].assumed == ("micro_batch",)
    assert by_id["QD03"].assumed == ()
    kinds = {id: {class_of(each) for each in readings(by_id[id])} for id in ("SR01", "QD03")}
    assert "RL update, work assumed" in kinds["SR01"]
    assert {"RL update", "scoring"} <= kinds["QD03"]
