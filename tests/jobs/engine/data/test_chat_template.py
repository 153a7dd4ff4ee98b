"""Templates of different families render as in Transformers: the same text, the same ids, the same mask.

Each file in `chat_templates/` stands for a family, and says in its first line what it uses of Jinja. Templates that
installed packages bring along are tried where they are.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from jobs.engine.data.chat_template import ChatTemplate
from jobs.engine.data.text import TextModel, TextSegment
from jobs.engine.problem import RunProblem
from tests.jobs.engine.data.text_models import byte_level, model_folder, sentence_pieces

FOLDER = Path(__file__).parent / "chat_templates"
KINDS = {"bytes": byte_level, "pieces": sentence_pieces}
NOW = datetime(2026, 11, 26, 12, 0, 0)  # noqa: DTZ001, as Transformers has it
CALL = {
    "type": "function",
    "id": "call00001",
    "function": {"name": "weather", "arguments": {"city": "Zürich <3>", "n": 2}},
}
SECOND = {"type": "function", "id": "call00002", "function": {"name": "clock", "arguments": {}}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "question": [{"role": "user", "content": "What is 1 + 1?"}],
    "answer": [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "The answer is 2."},
    ],
    "turns": [
        {"role": "user", "content": " 12 - 5?\n"},
        {"role": "assistant", "content": "<think>\n12 - 5 = 7\n</think>\n\n7"},
        {"role": "user", "content": "And 数学, \"<b>é</b>\" & {{ 'x' }} <|im_end|>"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nThat is it. ", "reasoning_content": "hm\n"},
    ],
    "call": [
        {"role": "system", "content": "Use the tools.", "tools": "[weather]"},
        {"role": "user", "content": "Warm in Zürich?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": '{"degrees": "<5 °C"}'},
        {"role": "assistant", "content": "They say that it is cold."},
    ],
    "calls": [
        {"role": "user", "content": "Warm? And what time?"},
        {"role": "assistant", "content": "One moment.", "tool_calls": [CALL, SECOND]},
        {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "cold"},
        {"role": "tool", "name": "clock", "tool_call_id": "call00002", "content": "12"},
        {"role": "assistant", "content": "Cold, and noon."},
    ],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather & more, é <now>",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": ["string", "null"]}}},
]
VARIABLES: dict[str, dict[str, Any]] = {
    "alone": {},
    "tools": {"tools": TOOLS},
    "more": {
        "documents": [{"title": "Alps", "text": "High <and> cold"}, {"title": "Sea", "text": "Low"}],
        "enable_thinking": False,
        "controls": {"length": "short"},
        "date_string": "1 Jan 2025",
    },
}


def installed() -> Iterator[Path]:
    for package in ("vllm", "trl"):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
            yield from sorted(Path(place).glob("**/chat_templates/*.jinja"))


TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in (*sorted(FOLDER.glob("*.jinja")), *installed())}
TEMPLATES = {name: text for name, text in TEXTS.items() if "conversations[0]" not in text}  # one wants other variables


class Sides:
    """A template with one kind of tokenizer, ours and Transformers'."""

    def __init__(self, folder: Path, peer: PreTrainedTokenizerFast, template: str) -> None:
        self.ours = TextModel(folder, now=NOW)
        self._peer, self._template = peer, template
        self.has_marks = "endgeneration" in template

    def text(self, messages: list[dict[str, Any]], variables: dict[str, Any], *, opens_answer: bool) -> str | None:
        """Return Transformers' text; None if it refuses the conversation."""
        try:
            return str(self._applied(messages, variables, tokenize=False, add_generation_prompt=opens_answer))
        except Exception:
            return None

    def tokens(self, messages: list[dict[str, Any]], variables: dict[str, Any], **more: bool) -> dict[str, Any]:
        """Return Transformers' `input_ids`, and what else is asked for."""
        return dict(self._applied(messages, variables, tokenize=True, return_dict=True, **more))

    def _applied(self, messages: list[dict[str, Any]], variables: dict[str, Any], **more: Any) -> Any:
        return self._peer.apply_chat_template(messages, chat_template=self._template, **variables, **more)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: model_folder(root / kind, make()) for kind, make in KINDS.items()}


@pytest.fixture(scope="module")
def peers(folders: dict[str, Path]) -> dict[str, PreTrainedTokenizerFast]:
    return {kind: PreTrainedTokenizerFast.from_pretrained(folder) for kind, folder in folders.items()}


@pytest.fixture(autouse=True, scope="module")
def same_day() -> Iterator[None]:
    """Have Transformers write the date of `NOW`."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return NOW

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", Stopped)
        yield


@pytest.fixture
def sides(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    folders: dict[str, Path],
    peers: dict[str, PreTrainedTokenizerFast],
) -> Sides:
    kind, name = request.param
    return made(kind, name, tmp_path, folders, peers)


def made(
    kind: str, name: str, place: Path, folders: dict[str, Path], peers: dict[str, PreTrainedTokenizerFast]
) -> Sides:
    folder = place / f"{kind}-{name}"
    folder.mkdir(exist_ok=True)
    for file in folders[kind].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "chat_template.jinja").write_text(TEMPLATES[name], encoding="utf-8")
    return Sides(folder, peers[kind], TEMPLATES[name])


def text_of(segments: list[TextSegment]) -> str:
    return "".join(segment.text for segment in segments)


each_template = pytest.mark.parametrize(
    "sides", [(kind, name) for kind in KINDS for name in TEMPLATES], indirect=True, ids="-".join
)


@each_template
def test_prompts_have_the_text_and_the_ids_of_transformers(sides: Sides) -> None:
    num_rendered = 0
    for messages in CONVERSATIONS.values():
        asked = messages if messages[-1]["role"] != "assistant" else messages[:-1]
        for variables in VARIABLES.values():
            wanted = sides.text(asked, variables, opens_answer=True)
            if wanted is None:
                with pytest.raises(RunProblem, match="cannot render"):
                    sides.ours.prompt(asked, variables)
                continue
            segments = sides.ours.prompt(asked, variables)
            (tokenized,) = sides.ours.tokenize([segments])

            assert text_of(segments) == wanted
            assert list(tokenized.tokens) == sides.tokens(asked, variables, add_generation_prompt=True)["input_ids"]
            num_rendered += 1
    assert num_rendered


@each_template
def test_conversations_have_the_text_the_ids_and_the_mask_of_transformers(sides: Sides) -> None:
    for name, messages in CONVERSATIONS.items():
        if name == "question":
            continue
        for variables in VARIABLES.values():
            wanted = sides.text(messages, variables, opens_answer=False)
            if wanted is None:
                with pytest.raises(RunProblem, match="cannot render"):
                    sides.ours.conversation(messages, variables)
                continue
            if not wanted.startswith(sides.text(messages[:-1], variables, opens_answer=True) or "no answer"):
                with pytest.raises(RunProblem, match="otherwise than it opens one"):
                    sides.ours.conversation(messages, variables)
                continue
            segments = sides.ours.conversation(messages, variables)
            (tokenized,) = sides.ours.tokenize([segments])
            theirs = sides.tokens(messages, variables, return_assistant_tokens_mask=True)

            assert text_of(segments) == wanted
            assert list(tokenized.tokens) == theirs["input_ids"]
            assert any(tokenized.is_trained)
            if sides.has_marks:
                assert [int(trained) for trained in tokenized.is_trained] == theirs["assistant_masks"]


@each_template
def test_the_last_turn_is_the_last_of_what_transformers_masks(sides: Sides) -> None:
    messages = CONVERSATIONS["turns"]
    wanted = sides.text(messages, {}, opens_answer=False)
    if wanted is None or not wanted.startswith(sides.text(messages[:-1], {}, opens_answer=True) or "no answer"):
        return
    every = sides.ours.tokenize([sides.ours.conversation(messages)])[0].is_trained
    (last,) = sides.ours.tokenize([sides.ours.conversation(messages, trained=[False, False, False, True])])
    (none,) = sides.ours.tokenize([sides.ours.conversation(messages, trained=[False] * 4)])
    theirs = sides.tokens(messages, {}, return_assistant_tokens_mask=True)
    mask = [bool(m) for m in theirs["assistant_masks"]] if sides.has_marks else list(every)

    first_of_last = max(i for i, is_in in enumerate(mask) if is_in and not (i and mask[i - 1]))
    assert list(last.is_trained) == [is_in and i >= first_of_last for i, is_in in enumerate(mask)]
    assert not any(none.is_trained)


TEXT = st.text(max_size=30) | st.sampled_from(
    ["", "\n\nhm", "a </think> b", "<|im_end|>", "é & <b> 数", "{{ 1 }} \\n\"'"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(lambda name, arguments: {"function": {"name": name, "arguments": arguments}}, TEXT, JSON)
TURN = st.one_of(
    st.builds(lambda text: [{"role": "assistant", "content": text}], TEXT),
    st.builds(
        lambda text, call, answer: [
            {"role": "assistant", "content": text, "tool_calls": [call]},
            {"role": "tool", "name": "a", "tool_call_id": "b", "content": answer},
            {"role": "assistant", "content": answer},
        ],
        st.none() | TEXT,
        CALLS,
        TEXT,
    ),
)
CONVERSATION = st.builds(
    lambda system, turns: [*system, *(m for asked, said in turns for m in [{"role": "user", "content": asked}, *said])],
    st.lists(st.builds(lambda text: {"role": "system", "content": text}, TEXT), max_size=1),
    st.lists(st.tuples(TEXT, TURN), min_size=1, max_size=3),
)


@pytest.fixture(scope="module", params=["qwen2_5", "qwen3", "llama3", "smollm3", "marked_tools"])
def any_sides(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    folders: dict[str, Path],
    peers: dict[str, PreTrainedTokenizerFast],
) -> Sides:
    return made("bytes", request.param, tmp_path_factory.mktemp("random"), folders, peers)


@settings(max_examples=25, deadline=None)
@given(messages=CONVERSATION, tools=st.none() | st.lists(CALLS, max_size=2), thinks=st.booleans())
def test_random_conversations_are_rendered_as_by_transformers(
    any_sides: Sides, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, thinks: bool
) -> None:
    variables = {"tools": tools, "enable_thinking": thinks}
    prompt = any_sides.ours.prompt(messages[:-1], variables)
    assert text_of(prompt) == any_sides.text(messages[:-1], variables, opens_answer=True)

    with contextlib.suppress(RunProblem):  # where thinking is opened, and the answer has no thoughts
        check_conversation(any_sides, messages, variables)


def check_conversation(any_sides: Sides, messages: list[dict[str, Any]], variables: dict[str, Any]) -> None:
    segments = any_sides.ours.conversation(messages, variables)
    (tokenized,) = any_sides.ours.tokenize([segments])
    theirs = any_sides.tokens(messages, variables, return_assistant_tokens_mask=True)
    apart = [any_sides.ours.encode(segment.text) for segment in segments]
    assert text_of(segments) == any_sides.text(messages, variables, opens_answer=False)
    assert list(tokenized.tokens) in (theirs["input_ids"], [token for part in apart for token in part])
    if any_sides.has_marks and list(tokenized.tokens) == theirs["input_ids"]:
        assert [int(trained) for trained in tokenized.is_trained] == theirs["assistant_masks"]


def template(text: str) -> ChatTemplate:
    return ChatTemplate(text, now=NOW)


def test_a_block_whose_place_is_lost_gives_no_mask_and_the_right_text() -> None:
    """Transformers' own mask is of other letters then."""
    shouting = template(
        "{% macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
        "{% for m in messages %}{{ say(m) | upper }}{% endfor %}"
    )

    assert shouting.stretches({"messages": [{"content": "a"}]}) is None
    assert shouting.render({"messages": [{"content": "a"}]}) == "A"


def test_a_block_is_found_through_a_macro() -> None:
    quiet = template(
        "{% macro say(m) %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endmacro %}"
        "{% for m in messages %}{{ say(m) }}{% endfor %}"
    )

    assert quiet.stretches({"messages": [{"content": "a"}]}) == [("[", False), ("a", True), ("]", False)]
    assert template("{{ messages }}").stretches({}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% generation %}", "not valid"),
        ("{% for a in [1] %}" * 25 + "{% endfor %}" * 25, "not valid"),
        ("{{ raise_exception('x' * 100000) }}", "xxx…"),
        ("{{ raise_exception('no system role.') }}", "cannot render this conversation: no system role."),
        ("{{ messages | tojson }}", "not JSON serializable"),
        ("{{ 1 // 0 }}", "cannot render"),
        ("{{ messages.append(1) }}", "cannot render"),
        ("{% set x = messages.__class__.__base__.__subclasses__() %}{{ x }}", "cannot render"),
    ],
)
def test_what_a_template_does_wrong_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(RunProblem, match=said) as caught:
        template(text).render({"messages": [{"content": NOW}]})

    assert caught.value.field == "model.id"
    assert not caught.value.message.endswith("..")
    assert len(caught.value.message) < 700
