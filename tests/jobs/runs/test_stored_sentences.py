"""Stored sentences are said in the reader's language: each that some code writes stands among those that are known."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import translation

from jobs.runner.failures import cause as runner_cause
from jobs.runs.stored_sentences import CAUSES, HISTORY, WAITS, say_cause, say_stored

ROOT = Path(__file__).resolve().parents[3]
WRITERS = (
    "jobs/captures/artifacts.py",
    "jobs/captures/captures.py",
    "jobs/engine/checkpoints/saving.py",
    "jobs/engine/failures/failure_cause.py",
    "jobs/engine/optimizer_steps.py",
    "jobs/engine/step_rollout.py",
    "jobs/ingest/store.py",
    "jobs/processes/reconcile.py",
    "jobs/retention/apply.py",
    "jobs/retention/deletion.py",
    "jobs/runner/finish.py",
    "jobs/runner/supervisor.py",
    "jobs/runs/admission.py",
    "jobs/runs/exit_cause.py",
    "jobs/runs/holds.py",
    "jobs/runs/launch.py",
    "jobs/runs/lifecycle.py",
    "jobs/runs/live_changes.py",
    "jobs/runs/merges.py",
    "jobs/runs/pins.py",
    "jobs/runs/resume.py",
    "jobs/runs/retry.py",
)
IN_GETTEXT = ("admission", "exit_cause", "holds", "reconcile", "retry")
"""Modules whose texts in gettext are stored; what others say so is an answer to a person."""
SAYS = ("note", "_tell", "_cause", "_fail")
SAMPLES = {
    "_called(row)": "Capture of steps 7 to 8 with torch",
    "who": "policy rank 7",
    "when": "step 7",
    "pins:done": "pinned",
    "saving:done": "pinned: it is not deleted",
    "merges:how": "was canceled",
    "finish:how": "its processes were ended",
    "lifecycle:text": "Failed",
    "whose": "its",
    "waited": "",
    "_mebibytes(size)": "7 MiB",
    "progress.moment": "in step 7",
    "left": "It has saved no checkpoint",
    "f', in step {step + 1}' if step else ''": ", in step 7",
}
PARTLY = {"attempt 7 Failed": "what stands behind the number is looked at where it is written"}
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def written(path: str) -> Iterator[str]:
    """Yield the texts that a module stores, each value in them a sample of it."""
    stem = Path(path).stem
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        values: list[ast.expr] = []
        match node:
            case ast.Assign(targets=[ast.Name(id="text")]):
                values = [node.value]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                values = [one.value for one in node.keywords if one.arg == "text"]
                values += node.args if name in SAYS else []
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                values = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "text"]
        for value in values:
            for text in texts_of(value, stem):
                if (" " in text or text[:1].isupper()) and text not in PARTLY:
                    yield text


def texts_of(value: ast.expr, stem: str) -> Iterator[str]:
    """Yield the texts that an expression may be, as far as they stand in it."""
    match value:
        case ast.Constant(value=str(text)):
            yield re.sub(r"%\(\w+\)s", "7", text)
        case ast.JoinedStr():
            yield "".join(piece(part, stem) for part in value.values)
        case ast.IfExp():
            for each in (value.body, value.orelse):
                yield from texts_of(each, stem)
        case ast.BinOp(op=ast.Mod()):
            yield from texts_of(value.left, stem)
        case ast.Call(func=ast.Name(id="_"), args=[one]) if stem in IN_GETTEXT:
            yield from texts_of(one, stem)
        case ast.Call(func=ast.Name(id="counted"), args=[one]):
            yield from texts_of(one, stem)
        case ast.Call(func=ast.Attribute(value=ast.Dict(values=values), attr="get"), args=[_, other]):
            for each in (*values, other):
                yield from texts_of(each, stem)


def piece(part: ast.expr, stem: str) -> str:
    """Return a part of an f-string: its text, or a sample of its value."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    source = ast.unparse(part.value)
    return SAMPLES.get(f"{stem}:{source}") or SAMPLES.get(source, "7")


@pytest.mark.parametrize("path", WRITERS)
def test_what_a_module_stores_is_known(path: str) -> None:
    texts = list(written(path))

    assert texts, "nothing is found in it any more"
    with translation.override("zh-hans"):
        assert [text for text in texts if not CHINESE.search(say_stored(text))] == []


def test_every_cause_that_the_runner_finds_is_known() -> None:
    texts = [
        symptom.text for symptom in runner_cause._SYMPTOMS if "FlashAttention" not in symptom.text
    ]  # in English yet
    texts += [text for _side, text in runner_cause._SIGNALS.values()] + [runner_cause._NODE_FULL]
    for who in ("the trainer", "policy rank 1"):
        for at in (" in step 12", " before the first step was done", " while saving after step 60"):
            for text in texts:
                stored = f"{who} {text.format(step=at, what='flash_attn')}"
                with translation.override("zh-hans"):
                    now = say_stored(stored)
                assert CHINESE.search(now), stored
                assert not re.search(r" step|rank \d|the trainer", now), now


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("Checkpoint 40 saved, 7.54 MiB in 0.063 s", "已保存第 40 步的检查点，7.54 MiB，用时 0.063 秒"),
        ("Stop requested", "已请求停止"),
        ("model-best.zip can be downloaded", "model-best.zip 可以下载"),
        ("Capture of steps 3 to 4 with torch is ready", "第 3 至 4 步的采集（torch）已就绪"),
        (
            "Failed: policy rank 1 was ended from outside in step 12 (SIGTERM)",
            "失败：policy 第 1 号进程被外部结束（第 12 步）（SIGTERM）",
        ),
        ("Clean-up checked: 1 process left", "已检查清理：剩余 1 个进程"),
        ("Something that nobody writes", "Something that nobody writes"),
        ("", ""),
    ],
)
def test_a_sentence_is_said_with_its_own_values(stored: str, said: str) -> None:
    assert say_stored(stored) == stored  # in English
    with translation.override("zh-hans"):
        assert say_stored(stored) == said


def test_a_cause_keeps_what_was_stored_beside_what_is_said() -> None:
    cause = {"side": "cluster", "text": "Ray did not take its job for five minutes"}

    assert say_cause(cause) == cause
    with translation.override("zh-hans"):
        assert say_cause(cause)["stored_text"] == cause["text"]
        assert CHINESE.search(str(say_cause(cause)["text"]))
        assert say_cause({}) == {}


def test_every_sentence_is_translated() -> None:
    for texts in (HISTORY, CAUSES, WAITS):
        for text in texts:
            with translation.override("zh-hans"):
                assert translation.gettext(text) != text, text
