"""What trainers dump of their rollouts, as sample events; what verl wrote is as its own code writes it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from jobs.adapters.adapter import LogReader, adapter
from jobs.adapters.logs.samples import MAX_CHARS, MAX_SAMPLES, text_of
from jobs.adapters.openrlhf.logs import printed_sample
from jobs.catalog.spec.parse import parse_spec
from profiling.events import EVENTS, to_line

SECOND = 10**9


def reader(run_dir: Path, trainer: str, *, reward: Mapping[str, str] | None = None, **knobs: Any) -> LogReader:
    (run_dir / "log").mkdir(exist_ok=True)
    about = {"reward": dict(reward)} if reward else {}
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": "grpo", "knobs": knobs, **about})
    found = adapter(trainer).logs(spec=spec, run_dir=run_dir)
    assert found is not None
    return found


def samples(logs: LogReader, *, polls: int = 3) -> list[dict[str, Any]]:
    events = [event for i in range(polls) for event in logs.poll(now_ns=(i + 1) * SECOND)]
    EVENTS.validate_json(b"[" + b",".join(to_line(event) for event in events) + b"]")
    return [dict(event) for event in events if event["kind"] == "sample"]


def dump(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def row(prompt: str, output: str, score: float, **more: Any) -> dict[str, Any]:
    return {"input": prompt, "output": output, "gts": "4", "score": score, "step": 3, **more}


def test_verls_rollouts_and_evaluations_are_read_by_group_with_the_parts_of_their_rewards(tmp_path: Path) -> None:
    dump(
        tmp_path / "log" / "rollouts" / "3.jsonl",
        [
            row("2 + 2?", "4", 1.0, acc=True, uid="17_0_0", num_turns=2),
            row("2 + 3?", "5", 1.0, acc=True, uid="18_0_0", num_turns=2),
            row("2 + 2?", "5", -0.5, acc=False, uid="17_1_0", num_turns=4, note="not a number"),
        ],
    )
    dump(tmp_path / "log" / "evaluations" / "0.jsonl", [row("1 + 1?", "2", 1.0, reward=1.0)])

    found = samples(reader(tmp_path, "verl"))

    assert [(one["step"], one["is_eval"], one["group"], one["index"], one["completion"]) for one in found] == [
        (3, False, 0, 0, "4"),
        (3, False, 1, 0, "5"),
        (3, False, 0, 1, "5"),
        (0, True, 0, 0, "2"),
    ]
    assert (found[2]["reward"], found[2]["rewards"], found[2]["expected"]) == (
        -0.5,
        {"acc": 0.0, "num_turns": 4.0},
        "4",
    )


def test_a_dump_is_read_once_it_is_whole_and_only_as_much_as_people_look_at(tmp_path: Path) -> None:
    path = tmp_path / "log" / "rollouts" / "1.jsonl"
    dump(path, [row("a", "b", 0.0)])
    logs = reader(tmp_path, "verl")
    assert samples(logs, polls=1) == []
    dump(path, [row("a" * (2 * MAX_CHARS), f"\x00{i}\ud800", 0.0) for i in range(MAX_SAMPLES + 9)])
    assert samples(logs, polls=1) == []

    found = samples(logs)

    assert len(found) == MAX_SAMPLES
    assert len(found[0]["prompt"]) < MAX_CHARS + 100
    assert "40,000 characters are left out here" in found[0]["prompt"]
    assert samples(logs) == []


@pytest.mark.parametrize("text", ["", "[]", '"x"', "{", '{"input": 3, "output": "x"}', '{"output": "x"}', "[" * 10000])
def test_lines_that_are_no_responses_are_left_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log" / "rollouts" / "1.jsonl"
    dump(path, [row("a", "b", 0.0)])
    path.write_text(f"{text}\n{path.read_text()}", encoding="utf-8")
    dump(tmp_path / "log" / "rollouts" / "notes.jsonl", [row("c", "d", 0.0)])

    assert [one["completion"] for one in samples(reader(tmp_path, "verl"))] == ["b"]


def test_trls_completions_are_read_except_where_it_evaluates(tmp_path: Path) -> None:
    folder = tmp_path / "model" / "final" / "completions"
    folder.mkdir(parents=True)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    for step in (2, 4):
        table = {
            "step": [step] * 2,
            "prompt": [messages] * 2,
            "completion": [[{"role": "assistant", "content": text}] for text in ("4", "5")],
            "math_reward": [1.0, 0.0],
            "format_reward": [0.25, 0.0],
            "expected": ["4", "4"],
            "advantage": [0.7, -0.7],
        }
        parquet.write_table(pa.table(table), folder / f"completions_{step:05d}.parquet")
    (folder / "completions_00006.parquet").write_bytes(b"PAR1 and no more")
    two_updates = {"train.updates_per_rollout": 2}

    of_others = {"kind": "file", "location": "my.rewards"}
    found = samples(reader(tmp_path, "trl", reward=of_others, **two_updates, **{"eval.every_steps": 2}))

    assert [(one["step"], one["group"], one["index"], one["reward"]) for one in found][:2] == [
        (1, 0, 0, 1.25),
        (1, 0, 1, 0.0),
    ]
    assert found[0]["rewards"] == {"math_reward": 1.0, "format_reward": 0.25}
    assert found[0]["expected"] == "4"
    assert found[0]["prompt"].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    assert found[0]["completion"] == "<|im_start|>assistant\n4<|im_end|>"


def test_trls_reward_is_the_sum_of_what_its_functions_said(tmp_path: Path) -> None:
    """A function that returns None stands there as NaN, which TRL leaves out; others log columns of their own."""
    folder = tmp_path / "model" / "final" / "completions"
    folder.mkdir(parents=True)
    nan = float("nan")
    table = {
        "step": [1] * 3,
        "prompt": ["a"] * 3,
        "completion": ["b"] * 3,
        "score": [1.0, nan, 0.5],
        "num_words": [40, 50, 60],
        "seconds": [nan, 0.25, 0.5],
        "advantage": [0.7, 0.0, -0.7],
    }
    parquet.write_table(pa.table(table), folder / "completions_00001.parquet")
    known, unknown = tmp_path / "known", tmp_path / "unknown"
    for run_dir in (known, unknown):
        shutil.copytree(tmp_path / "model", run_dir / "model")

    of_known = samples(reader(known, "trl", reward={"kind": "file", "location": "my.rewards.score"}))
    of_unknown = samples(reader(unknown, "trl", reward={"kind": "file", "location": "my.rewards.wrapped"}))

    assert [one["reward"] for one in of_known] == [1.0, None, 0.5]
    assert of_known[1]["rewards"] == {"num_words": 50.0, "seconds": 0.25}
    assert [one["reward"] for one in of_unknown] == [41.0, 50.25, 61.0]


def test_messages_become_turns_and_calls_of_tools_stay_visible() -> None:
    calls = [{"function": {"name": "add", "arguments": {"a": 2}}}]
    turn = {
        "role": "assistant",
        "content": [{"type": "text", "text": "I add."}, {"type": "image"}],
        "tool_calls": calls,
    }

    assert text_of([turn]) == f"<|im_start|>assistant\nI add.\n<tool_call>\n{calls}\n</tool_call><|im_end|>"
    assert (text_of(None), text_of("plain"), text_of(["x"])) == ("", "plain", "['x']")


def test_openrlhfs_printed_response_belongs_to_the_step_that_is_printed_after_it(tmp_path: Path) -> None:
    logs = reader(tmp_path, "openrlhf")
    head = "\x1b[36m(PPOTrainer pid=812, ip=10.0.0.7)\x1b[0m INFO 11-20 12:00:00 ppo_trainer.py"
    (tmp_path / "log" / "driver-0.stdout").write_text(
        f"{head}:224] Sample: ['user\\n2 + 2?\\nassistant\\n4', 1.0]\n"
        f"{head}:551] ✨ Global step 7: {{'policy_loss': 0.1, 'timing/generation': 3.0, 'timing/step_total': 5.0}}\n"
        f"{head}:551] ✨ Global step 8: {{'policy_loss': 0.1}}\n",
        encoding="utf-8",
    )

    found = samples(logs)

    assert [(one["step"], one["completion"], one["reward"]) for one in found] == [
        (7, "user\n2 + 2?\nassistant\n4", 1.0)
    ]
    assert printed_sample("x.py:1] Sample: ['a', np.float64(nan)]") is not None
    for line in ("] Sample: [", "] Sample: [1, 2]", "] Sample: ['a']", "Sample: ['a', 1.0]", "] Sample: " + "[" * 9000):
        assert printed_sample(line) is None
