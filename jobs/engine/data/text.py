"""Text to tokens: a model's tokenizer and its chat template, without torch or transformers.

Preview, rollout and training all come through here, so that what the New run page shows is what is trained. Text is
split into segments, each tokenized for itself: the boundary between prompt and answer is the same in SFT as in
generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox
from tokenizers import Tokenizer

from jobs.engine.data.model_files import read_json
from jobs.engine.problem import RunProblem

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSegment:
    """A stretch of rendered text, and whether its tokens carry loss."""

    text: str
    is_trained: bool


class TextModel:
    """The text side of a model folder: `encode`, `decode`, `prompt` and `conversation`."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises bare Exception
            raise RunProblem("model.id", f"The tokenizer of {folder.name!r} cannot be loaded: {error}.") from error
        config = (
            read_json(folder / "tokenizer_config.json", field="model.id")
            if (folder / "tokenizer_config.json").is_file()
            else {}
        )
        self._specials = {
            key: _content(config.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")
        }
        self.eos_ids = _eos_ids(folder, self._tokenizer, self._specials["eos_token"])
        pad = self._tokenizer.token_to_id(self._specials["pad_token"]) if self._specials["pad_token"] else None
        self.pad_id = pad if pad is not None else (self.eos_ids[0] if self.eos_ids else 0)
        self._template = _compile(_template_text(folder, config))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`; special tokens written in it are recognized, none are added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, in parallel."""
        return [list(e.ids) for e in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return the text that the model is to continue."""
        if self._template is None:
            return "\n\n".join(message["content"] for message in messages)
        return self._render(messages, opens_answer=True)

    def conversation(self, messages: Sequence[Message]) -> list[TextSegment]:
        """Return the conversation in segments; what the assistant says is trained, up to and with its end token.

        Where the template rewrites earlier turns, so that they are no prefix of the whole, only the last answer is
        trained.
        """
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if self._template is None:
            return self._plain(messages)
        whole = self._render(messages)
        for trained in (turns, turns[-1:]):
            segments = self._cut(messages, whole, trained)
            if segments is not None:
                return segments
        raise RunProblem(
            "data.response_column",
            "The chat template does not show where the answer begins. Use a model with another template.",
        )

    def _cut(self, messages: Sequence[Message], whole: str, turns: Sequence[int]) -> list[TextSegment] | None:
        segments: list[TextSegment] = []
        end = 0
        for turn in turns:
            before, after = self._render(messages[:turn], opens_answer=True), self._render(messages[: turn + 1])
            if not (whole.startswith(after) and after.startswith(before) and len(before) >= end):
                return None
            segments += [
                TextSegment(text=whole[end : len(before)], is_trained=False),
                TextSegment(text=after[len(before) :], is_trained=True),
            ]
            end = len(after)
        if end < len(whole):
            segments.append(TextSegment(text=whole[end:], is_trained=False))
        return segments

    def _plain(self, messages: Sequence[Message]) -> list[TextSegment]:
        segments = []
        for message in messages:
            is_answer = message["role"] == "assistant"
            text = message["content"] + (self._specials["eos_token"] if is_answer else "\n\n")
            segments.append(TextSegment(text=text, is_trained=is_answer))
        if len(segments) == 2:  # prompt and answer alone: the same boundary as `prompt`
            segments[0] = TextSegment(text=messages[0]["content"], is_trained=False)
        return segments

    def _render(self, messages: Sequence[Message], *, opens_answer: bool = False) -> str:
        assert self._template is not None
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=opens_answer, **self._specials)
        except (jinja2.TemplateError, TypeError) as error:
            raise RunProblem(
                "model.id", f"The model's chat template cannot render this conversation: {error}."
            ) from error


def _content(token: object) -> str:
    """Return a special token's text; configs write it as a string or as an object with `content`."""
    if isinstance(token, dict):
        return str(token.get("content", ""))
    return token if isinstance(token, str) else ""


def _eos_ids(folder: Path, tokenizer: Tokenizer, eos_token: str) -> list[int]:
    """The end tokens: those of generation_config.json (some models have several) and the tokenizer's own."""
    ids: list[int] = []
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            eos_ids = read_json(folder / name, field="model.id").get("eos_token_id")
            ids += [i for i in (eos_ids if isinstance(eos_ids, list) else [eos_ids]) if isinstance(i, int)]
    own = tokenizer.token_to_id(eos_token) if eos_token else None
    if own is not None:
        ids.append(own)
    return list(dict.fromkeys(ids))


def _template_text(folder: Path, config: Mapping[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template") or ""
    if isinstance(template, list):
        named = {str(t.get("name")): str(t.get("template")) for t in template if isinstance(t, dict)}
        return named.get("default", "")
    return str(template)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _compile(text: str) -> jinja2.Template | None:
    """Compile a chat template with the options Hugging Face compiles it with, in a sandbox: it came with the model."""
    if not text:
        return None
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(text)
    except jinja2.TemplateError as error:
        raise RunProblem("model.id", f"The model's chat template is not valid: {error}.") from error
