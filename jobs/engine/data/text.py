"""Text to tokens: a model's tokenizer and its chat template, without torch or transformers.

Preview, rollout and training all come through here, so that what the New run page shows is what is trained. Text comes
in segments, and the boundary between prompt and answer is the same in SFT as in generation: no token lies across it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import Encoding, Tokenizer
from tokenizers.decoders import DecodeStream

from jobs.engine.data.chat_template import ChatTemplate
from jobs.engine.data.model_files import read_json
from jobs.engine.problem import RunProblem

Message = Mapping[str, Any]
"""`role` and `content`, and whatever else the template reads: `tool_calls`, `tool_call_id`, `name`, ..."""
Variables = Mapping[str, Any]
"""What else a template may read: `tools`, `documents`, and those of its own, such as `enable_thinking`."""
_NONE: Variables = MappingProxyType({})
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_BETWEEN = "\n\n"
"""What stands between messages where no template says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSegment:
    """A stretch of rendered text, and whether its tokens carry loss."""

    text: str
    is_trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedText:
    """The tokens of some segments, and per token whether it carries loss; both of the same length."""

    tokens: tuple[int, ...]
    is_trained: tuple[bool, ...]


class TextModel:
    """The text side of a model folder: `prompt` and `conversation` lay out messages, `tokenize` and `decode` do the
    rest.
    """

    def __init__(self, folder: Path, *, now: datetime | None = None) -> None:
        """Load tokenizer and templates; `now` is the date that a template may write into a prompt, today's if None.

        Raises: RunProblem naming `model.id`.
        """
        self.now = now or datetime.now().astimezone().replace(tzinfo=None)
        self._tokenizer = _load_tokenizer(folder)
        config = _tokenizer_config(folder)
        named = {name: _content(config.get(name)) for name in _NAMED_TOKENS}
        self._specials = {name: text for name, text in named.items() if text}
        opening = _opening_tokens(self._tokenizer)
        self._opening = "".join(opening)
        _recognize(self._tokenizer, [*self._specials.values(), *opening])
        eos, pad = self._specials.get("eos_token", ""), self._specials.get("pad_token", "")
        self.eos_ids = _eos_ids(folder, self._tokenizer, eos)
        pad_id = self._tokenizer.token_to_id(pad) if pad else None
        self.pad_id = pad_id if pad_id is not None else (self.eos_ids[0] if self.eos_ids else 0)
        self._template_texts = _template_texts(folder, config)
        self._compiled: dict[str, ChatTemplate] = {}
        if "default" in self._template_texts:
            self._named_template("default")  # so that a broken one is told before there is a conversation

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`; special tokens written in it are recognized, none are added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return what each token adds to the text of `ids`; a character of several tokens is its last one's.

        A tokenizer that cannot be read piece by piece gives none.
        """
        stream = DecodeStream(skip_special_tokens=True)
        try:
            return [stream.step(self._tokenizer, token) or "" for token in ids]
        except Exception:  # tokenizers raises bare Exception, where a later token changes the text before it
            return []

    def tokenize(self, rows: Sequence[Sequence[TextSegment]]) -> list[TokenizedText]:
        """Return the tokens of each row of segments, in parallel.

        A row that a template rendered is tokenized whole, as Transformers does and as its model saw such text; but
        where a token would then lie across a boundary, or the prompt would not have the tokens that generation starts
        from, each of its segments is tokenized for itself, as all are without a template.
        """
        encodings = iter(self._encodings(segment.text for segments in rows for segment in segments))
        apart = [[next(encodings) for _ in segments] for segments in rows]
        tokenized = [_tokenized_apart(*row) for row in zip(apart, rows, strict=True)]
        if not self._template_texts:
            return tokenized
        several = [number for number, segments in enumerate(rows) if len(segments) > 1]
        wholes = self._encodings("".join(segment.text for segment in rows[number]) for number in several)
        for number, whole in zip(several, wholes, strict=True):
            as_whole = _tokenized_whole(whole, rows[number], begin=apart[number][0].ids)
            tokenized[number] = as_whole or tokenized[number]
        return tokenized

    def _encodings(self, texts: Iterable[str]) -> list[Encoding]:
        return list(self._tokenizer.encode_batch(list(texts), add_special_tokens=False))

    def prompt(self, messages: Sequence[Message], variables: Variables = _NONE) -> list[TextSegment]:
        """Return the text that the model is to continue; nothing of it is trained."""
        template = self._template(variables)
        if template is None:
            return self._without_template(messages, turns=())
        text = self._render(template, messages, variables, opens_answer=True)
        return [TextSegment(text=text, is_trained=False)]

    def conversation(
        self, messages: Sequence[Message], variables: Variables = _NONE, *, trained: Sequence[bool] | None = None
    ) -> list[TextSegment]:
        """Return the conversation in segments; what the assistant says is trained, up to and with its end token.

        `trained` has a value for each message and narrows that to some turns of the assistant; None: all. A template
        with generation blocks says itself what of a turn is trained. Where one without them rewrites earlier turns, so
        that they are no prefix of the whole, only the last answer is trained.
        Raises: RunProblem where the template does not show which text is that of the turns to train.
        """
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        wanted = [turn for turn in turns if trained is None or trained[turn]]
        template = self._template(variables)
        if template is None:
            return self._without_template(messages, wanted)
        marked = template.stretches(self._context(messages, variables))
        if marked is not None and (segments := _marked(marked, turns, wanted)) is not None:
            return segments
        whole = self._render(template, messages, variables)
        for tried in (wanted, wanted[-1:]):
            if tried == wanted or tried == turns[-1:]:
                segments = self._cut(template, messages, variables, whole, tried)
                if segments is not None:
                    return segments
        if trained is not None and wanted[-1:] != turns[-1:]:
            raise RunProblem(
                "data.messages_column",
                "The chat template writes earlier turns of a conversation otherwise than it opens them, so only its "
                "last answer can be trained. Leave out the messages behind the last one to train, or use a model with "
                "another template.",
            )
        raise RunProblem(
            "data.response_column",
            "The chat template begins the answer of a conversation otherwise than it opens one. Set the variables with "
            "which it does not (data.chat_template_kwargs), or use a model with another template.",
        )

    def _cut(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        variables: Variables,
        whole: str,
        turns: Sequence[int],
    ) -> list[TextSegment] | None:
        segments: list[TextSegment] = []
        end = 0
        for turn in turns:
            before = self._render(template, messages[:turn], variables, opens_answer=True)
            after = self._render(template, messages[: turn + 1], variables)
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

    def _without_template(self, messages: Sequence[Message], turns: Sequence[int]) -> list[TextSegment]:
        """Return what is asked and what is answered in turn, begun as the tokenizer itself begins a text; the answers
        of these `turns` are trained.
        """
        segments: list[TextSegment] = []
        pending: list[str] = []
        for number, message in enumerate(messages):
            content = message.get("content") or ""
            if message["role"] != "assistant":
                pending.append(content)
                continue
            if pending:
                segments.append(TextSegment(text=_BETWEEN.join(pending), is_trained=False))
            text = content + self._specials.get("eos_token", "")
            segments.append(TextSegment(text=text, is_trained=number in turns))
            pending = []
        if pending:
            segments.append(TextSegment(text=_BETWEEN.join(pending), is_trained=False))
        if not self._opening or "".join(s.text for s in segments).startswith(self._opening):
            return segments
        return [TextSegment(text=self._opening, is_trained=False), *segments]

    def _template(self, variables: Variables) -> ChatTemplate | None:
        """Return the template for these variables, None if the model has none: some have another one for tools."""
        texts = self._template_texts
        if not texts:
            return None
        if variables.get("tools") is not None and "tool_use" in texts:
            return self._named_template("tool_use")
        if "default" not in texts:
            names = ", ".join(sorted(texts))
            raise RunProblem("model.id", f"The model has chat templates, but none for all: {names}. Name one default.")
        return self._named_template("default")

    def _named_template(self, name: str) -> ChatTemplate:
        if name not in self._compiled:
            self._compiled[name] = ChatTemplate(self._template_texts[name], now=self.now)
        return self._compiled[name]

    def _render(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        variables: Variables,
        *,
        opens_answer: bool = False,
    ) -> str:
        return template.render(self._context(messages, variables, opens_answer=opens_answer))

    def _context(
        self, messages: Sequence[Message], variables: Variables, *, opens_answer: bool = False
    ) -> dict[str, Any]:
        own = {"messages": list(messages), "add_generation_prompt": opens_answer}
        return {"tools": None, "documents": None, **self._specials, **variables, **own}


def _marked(
    stretches: Sequence[tuple[str, bool]], turns: Sequence[int], wanted: Sequence[int]
) -> list[TextSegment] | None:
    """Return a text in the generation blocks of its template, those of the `wanted` turns trained.

    None if only some turns are wanted, and the blocks are not one for each turn of the assistant.
    """
    if list(wanted) == list(turns):
        return [TextSegment(text=text, is_trained=is_marked) for text, is_marked in stretches]
    if sum(is_marked for _, is_marked in stretches) != len(turns):
        return None
    blocks = iter(turns)
    return [TextSegment(text=text, is_trained=is_marked and next(blocks) in wanted) for text, is_marked in stretches]


def _load_tokenizer(folder: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # tokenizers raises bare Exception
        raise RunProblem("model.id", f"The tokenizer of {folder.name!r} cannot be loaded: {error}.") from error
    tokenizer.no_padding()  # some files carry the settings of what their model was once used for
    tokenizer.no_truncation()
    return tokenizer


def _tokenizer_config(folder: Path) -> dict[str, object]:
    """Return tokenizer_config.json; special tokens of models of some years ago stand in a file of their own."""
    config: dict[str, object] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file() and "added_tokens_decoder" not in config:
            config |= read_json(folder / name, field="model.id")
    return config


def _opening_tokens(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens that the tokenizer puts before a text, such as the token of its beginning; not those behind."""
    encoding = tokenizer.encode("a")
    where = list(encoding.sequence_ids)  # None: not of the text
    return list(encoding.tokens[: where.index(0)]) if 0 in where else []


def _recognize(tokenizer: Tokenizer, tokens: Iterable[str]) -> None:
    """Have tokens of the vocabulary recognized in a text, as Transformers has those that a configuration names."""
    own = {added.content for added in tokenizer.get_added_tokens_decoder().values()}
    tokenizer.add_special_tokens(
        [token for token in tokens if token not in own and tokenizer.token_to_id(token) is not None]
    )


def _tokenized_apart(encodings: Sequence[Encoding], segments: Sequence[TextSegment]) -> TokenizedText:
    tokens = tuple(token for encoding in encodings for token in encoding.ids)
    pairs = zip(encodings, segments, strict=True)
    is_trained = tuple(segment.is_trained for encoding, segment in pairs for _ in encoding.ids)
    return TokenizedText(tokens=tokens, is_trained=is_trained)


def _tokenized_whole(whole: Encoding, segments: Sequence[TextSegment], *, begin: Sequence[int]) -> TokenizedText | None:
    """Return the tokens of the whole text, None if one lies across a boundary or they do not begin with `begin`."""
    if list(whole.ids[: len(begin)]) != list(begin):
        return None
    starts, ends = [start for start, _ in whole.offsets], [end for _, end in whole.offsets]
    is_trained: list[bool] = []
    boundary = 0
    for segment in segments[:-1]:
        boundary += len(segment.text)
        first = bisect_left(starts, boundary)  # of the tokens behind it
        if first and ends[first - 1] > boundary:
            return None
        is_trained += [segment.is_trained] * (first - len(is_trained))
    is_trained += [segments[-1].is_trained] * (len(starts) - len(is_trained))
    return TokenizedText(tokens=tuple(whole.ids), is_trained=tuple(is_trained))


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


def _template_texts(folder: Path, config: Mapping[str, object]) -> dict[str, str]:
    """Return the model's chat templates by name, none if it has none; files count for more than the configuration.

    Source: transformers/tokenization_utils_base.py, `_from_pretrained`.
    """
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    else:
        template = config.get("chat_template") or ""
        named = template if isinstance(template, list) else [{"name": "default", "template": template}]
        texts = {str(t.get("name")): str(t.get("template")) for t in named if isinstance(t, dict)}
    return {name: text for name, text in texts.items() if text}
