"""Chat templates, rendered as Transformers renders them, in a sandbox: a template comes with the model.

Source: transformers/utils/chat_template_utils.py, `_cached_compile_jinja_template` and `render_jinja_template`, for
Jinja's options and extensions, the filter `tojson`, and what else a template may call. Imports no transformers.
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from jobs.engine.problem import RunProblem

_OPENING, _CLOSING = (f"\x02{kind}{uuid.uuid4().hex}\x03" for kind in "<>")
"""What stands around a generation block while its place is looked for. No data can hold it: each process draws anew."""
_MARKS = re.compile(f"({re.escape(_OPENING)}|{re.escape(_CLOSING)})")
_MOST_CHARS = 500  # of what a template says when it refuses a conversation
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


class ChatTemplate:
    """One compiled template: `render` gives its text, `stretches` also what stands in its generation blocks."""

    def __init__(self, text: str, *, now: datetime) -> None:
        """Compile `text`; `now` is what `strftime_now` tells. Raises: RunProblem naming `model.id`."""
        self._plain = _compiled(text, _Generation, now)
        self._marking = _compiled(text, _MarkedGeneration, now) if _GENERATION.search(text) else None

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises: RunProblem naming `model.id` if the template refuses what it is given."""
        return _rendered(self._plain, variables)

    def stretches(self, variables: Mapping[str, Any]) -> list[tuple[str, bool]] | None:
        """Return the text in stretches, each with whether it stands in a generation block.

        None if the template has no such blocks, or does something to them in which their place is lost (a filter over a
        macro). Raises: as `render`.
        """
        if self._marking is None:
            return None
        stretches: list[tuple[str, bool]] = []
        depth = 0
        for piece in _MARKS.split(_rendered(self._marking, variables)):
            if piece in (_OPENING, _CLOSING):
                depth += 1 if piece == _OPENING else -1
            elif piece:
                stretches.append((piece, depth > 0))
        is_whole = "".join(piece for piece, _ in stretches) == self.render(variables)
        return stretches if is_whole else None


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`: a block of its own scope, which is otherwise as if it was not there."""

    tags = {"generation"}
    opening = closing = ""

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """See Extension."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_block"), [], [], body).set_lineno(line)

    def _block(self, caller: Callable[[], str]) -> str:
        return f"{self.opening}{caller()}{self.closing}"


class _MarkedGeneration(_Generation):
    opening, closing = _OPENING, _CLOSING


def _compiled(text: str, generation: type[_Generation], now: datetime) -> jinja2.Template:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": now.strftime}
    try:
        return environment.from_string(text)
    except Exception as error:  # Python compiles what Jinja writes, and refuses loops in loops beyond twenty
        raise RunProblem("model.id", f"The model's chat template is not valid: {_reason(error)}.") from error


def _rendered(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    try:
        return template.render(variables)
    except Exception as error:  # whatever the code of a template comes upon in a conversation
        raise RunProblem(
            "model.id", f"The model's chat template cannot render this conversation: {_reason(error)}."
        ) from error


def _reason(error: Exception) -> str:
    said = str(error)  # which may hold the whole conversation
    return (said if len(said) <= _MOST_CHARS else f"{said[:_MOST_CHARS]}…").rstrip(".") or type(error).__name__


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON for a prompt: Jinja's own filter would escape what means something in HTML, and sort the keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
