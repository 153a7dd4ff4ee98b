"""The trial process: what the New run page asks before launch."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.algorithm import is_in
from jobs.catalog.trainer import trainers
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.preflight import inspection
from jobs.engine.preflight.inspection import histogram
from jobs.engine.preflight.process import answer
from tests.jobs.engine.data.text_models import BOS, EOS, byte_level, model_folder

HOUSE = Path(__file__).parents[4]


def preview(tmp_path: Path, **spec: Any) -> dict[str, Any]:
    return answer({"op": "preview", "spec": spec, "inputs_dir": str(tmp_path), "samples": 5})


def test_the_process_answers_one_question_without_torch(tmp_path: Path) -> None:
    question = {"op": "preview", "spec": {}, "inputs_dir": str(tmp_path), "samples": 5}
    poisoned = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'ray', 'vllm', 'deepspeed'): sys.modules[name] = None\n"
        "from jobs.engine.preflight.process import main; main()"
    )
    begin = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", poisoned],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        cwd=HOUSE,
        check=True,
    )

    assert time.monotonic() - begin < 60  # two seconds on a quiet machine
    assert len(json.loads(done.stdout)["samples"]) == 5


def test_grpo_shows_prompts(tmp_path: Path) -> None:
    found = preview(tmp_path)

    assert (found["num_rows"], found["num_train"], found["num_eval"]) == (4096, 3686, 410)
    first = found["samples"][0]
    assert first["segments"] == [{"text": f"<|user|>{first['prompt']}<|assistant|>", "is_trained": False}]
    assert sum(found["lengths"]["counts"]) == 3686
    assert found["mapping_problem"] == ""


def test_sft_shows_the_loss_mask_and_what_is_cut(tmp_path: Path) -> None:
    found = preview(tmp_path, algorithm="sft", knobs={"train.max_sequence_tokens": 40})

    assert [s["is_trained"] for s in found["samples"][0]["segments"]] == [False, True]
    assert 0 < found["share_truncated"] < 1
    assert found["num_too_long"] == round(found["share_truncated"] * 3686)


def test_a_model_without_a_template_shows_the_token_of_the_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED / "tiny-word-problems", folder)
    (folder / "chat_template.jinja").unlink()
    model = {"kind": "path", "id": str(model_folder(folder, byte_level()))}

    prompts, pairs = (preview(tmp_path, algorithm=name, model=model)["samples"] for name in ("grpo", "sft"))

    begin = {"text": BOS, "is_trained": False}
    assert prompts[0]["segments"] == [begin, {"text": prompts[0]["prompt"], "is_trained": False}]
    assert [sample["segments"][:1] for sample in pairs] == [[begin]] * 5
    assert all(sample["segments"][2]["text"].endswith(EOS) for sample in pairs)


def test_a_column_of_tools_that_holds_something_else_is_a_problem_of_the_mapping(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "x", "answer": "1", "tools": "a hammer"}\n' * 20)

    data = preview(tmp_path, data={"kind": "path", "id": str(file)})
    ignored = preview(tmp_path, data={"kind": "path", "id": str(file), "tools_column": ""})

    assert data["mapping_field"] == "data.tools_column"
    assert data["mapping_problem"].startswith("Row 1 holds str 'a hammer' in column 'tools'.")
    assert ignored["mapping_problem"] == ""


def write_rows(file: Path, *rows: dict[str, Any]) -> dict[str, Any]:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows * (20 // len(rows))))
    return {"kind": "path", "id": str(file)}


def test_question_and_solution_need_no_typing(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", {"question": "1 + 1?", "solution": "It is #### 2"})

    found = preview(tmp_path, data=data)
    tried = answer({"op": "reward", "spec": {"data": data}, "inputs_dir": str(tmp_path), "samples": 2})

    assert found["recognized"] == {"data.prompt_column": "question", "data.answer_column": "solution"}
    first = found["samples"][0]
    assert (found["mapping_problem"], first["prompt"], first["answer"]) == ("", "1 + 1?", "It is #### 2")
    assert [r["reward"] for r in tried["results"]] == [1.0, 0.0]


def test_another_trainer_is_offered_the_columns_that_it_will_not_guess(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", {"question": "1 + 1?", "solution": "2"})

    found = preview(tmp_path, data=data, trainer={"name": "verl"})

    assert found["recognized"]["data.prompt_column"] == "question"
    assert found["mapping_field"] == "data.prompt_column"


def test_pairs_show_both_sides_with_what_is_learned_of_each(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "2 + 2?"}]
    texts = {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"}
    whole = {
        side: [*chat, {"role": "assistant", "content": said}] for side, said in (("chosen", "4"), ("rejected", "5"))
    }
    data = write_rows(tmp_path / "rows.jsonl", texts)
    chats = write_rows(tmp_path / "chats.jsonl", whole)
    dpo = {"algorithm": "dpo", "trainer": {"name": "openrlhf"}, "knobs": {"train.max_sequence_tokens": 128}}

    first = preview(tmp_path, data=data, **dpo)["samples"][0]
    second = preview(tmp_path, data={**chats, "prompt_column": ""}, **dpo)["samples"][0]

    for sample, asked, good, bad in ((first, "1 + 1?", "2", "3"), (second, "2 + 2?", "4", "5")):
        begin = {"text": f"<|user|>{asked}<|assistant|>", "is_trained": False}
        assert sample["segments"] == [begin, {"text": f"{good}<|eos|>", "is_trained": True}]
        assert sample["rejected"] == [begin, {"text": f"{bad}<|eos|>", "is_trained": True}]


def test_labeled_responses_are_shown_with_their_label_and_labels_that_are_all_equal_refused(tmp_path: Path) -> None:
    good, bad = ({"prompt": "1 + 1?", "completion": text, "label": text == "2"} for text in ("2", "3"))
    data = write_rows(tmp_path / "rows.jsonl", good, bad) | {"eval_share": 0.0}
    equal = write_rows(tmp_path / "equal.jsonl", good, good) | {"eval_share": 0.0}

    shown = preview(tmp_path, data=data, algorithm="kto")
    refused = preview(tmp_path, data=equal, algorithm="kto")

    assert shown["recognized"] == {"data.label_column": "label", "data.response_column": "completion"}
    assert {sample["answer"]: sample["label"] for sample in shown["samples"]} == {"2": "desirable", "3": "undesirable"}
    assert refused["mapping_problem"] == (
        "None of the 20 responses is undesirable. Learning from labels needs some of both."
    )
    assert refused["mapping_field"] == "data.label_column"


def test_rows_that_the_length_filter_leaves_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = {"prompt": "1", "response": "2", "answer": "2"}, {"prompt": "1 " * 60, "response": "2", "answer": "2"}
    data = write_rows(tmp_path / "rows.jsonl", short, short, short, long) | {"eval_share": 0.0}

    prompts = preview(tmp_path, data=data, knobs={"rollout.max_prompt_tokens": 20})
    answers = preview(tmp_path, data=data, algorithm="sft", knobs={"train.max_sequence_tokens": 20})
    monkeypatch.setattr(inspection, "MAX_MEASURED", 4)
    some = preview(tmp_path, data=data, knobs={"rollout.max_prompt_tokens": 20})

    assert (prompts["num_left_out"], prompts["num_measured"]) == (5, 20)
    assert (answers["num_left_out"], answers["num_too_long"]) == (5, 5)
    assert some["num_measured"] == 4


def test_a_missing_column_still_shows_the_columns_there_are(tmp_path: Path) -> None:
    found = preview(tmp_path, data={"prompt_column": "question"})

    assert found["recognized"] == {}
    assert found["columns"] == ["prompt", "answer", "response", "chosen", "rejected"]
    assert "no column 'question'" in found["mapping_problem"]
    assert found["samples"] == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"data": {"kind": "path", "id": "/nowhere/a.jsonl"}}, "data.id"),
        ({"model": {"kind": "path", "id": "/nowhere"}}, "model.id"),
        ({"knobs": {"optimizer.learning_rate": -1}}, "knobs.optimizer.learning_rate"),
        ("text", "spec"),
    ],
)
def test_what_cannot_work_is_a_problem_beside_its_field(tmp_path: Path, spec: Any, field: str) -> None:
    found = answer({"op": "preview", "spec": spec, "inputs_dir": str(tmp_path), "samples": 5})

    assert list(found) == ["problem"]
    assert found["problem"]["field"] == field
    assert found["problem"]["message"].endswith(".")


def test_a_reward_is_tried_on_answers_of_the_data_and_on_empty_ones(tmp_path: Path) -> None:
    found = answer({"op": "reward", "spec": {}, "inputs_dir": str(tmp_path), "samples": 8})

    assert [r["reward"] for r in found["results"]] == [1.0, 0.0] * 4
    assert all(r["seconds"] >= 0 for r in found["results"])


def test_a_reward_that_raises_is_a_problem_beside_the_file(tmp_path: Path) -> None:
    source = {"kind": "custom", "source": "def reward(p, c, a):\n    raise KeyError('x')", "file_name": "r.py"}

    found = answer({"op": "reward", "spec": {"reward": source}, "inputs_dir": str(tmp_path), "samples": 8})

    assert found["problem"]["field"] == "reward.source"
    assert "r.py line 2 raised KeyError" in found["problem"]["message"]


def test_tests_of_code_are_tried_on_the_data_s_own_responses() -> None:
    problems = {"kind": "path", "id": str(HOUSE / "docs/examples/code_problems.jsonl")}

    found = answer({"op": "reward", "spec": {"data": problems, "reward": {"kind": "code"}}, "samples": 8})
    failed = answer(
        {"op": "reward", "spec": {"data": problems | {"answer_column": "prompt"}, "reward": {"kind": "code"}}}
    )

    assert [r["reward"] for r in found["results"]] == [1.0, 0.0] * 4
    assert failed["problem"]["field"] == "data.answer_column"
    assert "which is no Python" in failed["problem"]["message"]


@pytest.mark.parametrize("algorithm", trainers()["native"].algorithms)
def test_formulas_of_one_s_own_are_tried_on_made_up_sequences(algorithm: str) -> None:
    """Here those of ours, in a file of the user's: whatever the family, the trial gives them what a run does."""
    source = f"from jobs.engine.algorithms.{algorithm} import PLUGIN\nBASE = {algorithm!r}"
    spec: dict[str, Any] = {"algorithm": algorithm, "knobs": {"algorithm.source": source}}
    if is_in(algorithm, "distillation"):
        spec["knobs"]["models.teacher_path"] = "/srv/teacher"

    found = answer({"op": "algorithm", "spec": spec})
    spec["knobs"]["algorithm.source"] += "\n1 / 0"
    failed = answer({"op": "algorithm", "spec": spec})

    assert "problem" not in found, found
    assert any(name.startswith("loss/") for name in found["metrics"])
    assert failed["problem"]["field"] == "knobs.algorithm.source"
    assert "algorithm.py line 3 raised while it was loaded" in failed["problem"]["message"]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (0.5, "within 0.5 s (reward.timeout_seconds), at r.py line 2"),
        (60, "within 1 s (the limit of a trial), at r.py"),
    ],
)
def test_a_reward_that_hangs_is_out_of_time_as_in_a_run_but_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, said: str
) -> None:
    source = {"kind": "custom", "source": "def reward(p, c, a):\n    while True: pass", "file_name": "r.py"}
    spec = {"reward": source, "knobs": {"reward.timeout_seconds": limit}}
    limits = replace(inspection.TRIAL_LIMITS, timeout_seconds=1.0)
    monkeypatch.setattr(inspection, "TRIAL_LIMITS", limits)

    problem = answer({"op": "reward", "spec": spec, "inputs_dir": str(tmp_path), "samples": 2})["problem"]

    assert "did not score completion 1 of 1" in problem["message"]
    assert said in problem["message"]


def test_a_trial_of_formulas_compares_them(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "?", "answer": r"2\sqrt{2}", "response": r"\boxed{\sqrt{8}}"}) + "\n")
    spec = {"data": {"kind": "path", "id": str(rows), "eval_share": 0.0}}

    found = answer({"op": "reward", "spec": spec, "inputs_dir": str(tmp_path), "samples": 2})

    assert [r["reward"] for r in found["results"]] == [1.0, 0.0]


def test_a_model_is_described_without_loading_it(tmp_path: Path) -> None:
    found = answer({"op": "model", "spec": {}, "inputs_dir": str(tmp_path)})

    assert found == {
        "architecture": "Qwen2ForCausalLM",
        "num_parameters": 657_024,
        "context_tokens": 512,
        "dtype": "bfloat16",
    }


def test_an_unknown_operation_is_refused() -> None:
    assert answer({"op": "dance", "spec": {}})["problem"]["field"] == "op"


@pytest.mark.parametrize("lengths", [[5], [1, 100], list(range(17, 45)), [3] * 10])
def test_the_histogram_counts_every_length_once(lengths: list[int]) -> None:
    found = histogram(lengths)

    assert sum(found["counts"]) == len(lengths)
    assert len(found["edges"]) == len(found["counts"]) + 1 <= 21
    assert found["edges"][0] == min(lengths)
    assert found["edges"][-1] > max(lengths)
