"""One input of the New run page, and a group of them, as the templates take them."""

from dataclasses import dataclass
from typing import Literal

from django.utils.text import slugify


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One input. `name` is the spec's dotted field; `help` stands behind the "?", as do range, effects and source.

    Those of knobs are many: the page asks for them when somebody wants to read (`console.forms.new_run.knob_index`).
    """

    name: str
    label: str
    value: str
    kind: Literal["text", "number", "choice", "area", "file"] = "text"
    choices: tuple[tuple[str, str], ...] = ()
    unit: str = ""
    flag: str = ""
    help: str = ""
    allowed: str = ""
    needs: tuple[tuple[str, tuple[str, ...], float | None], ...] = ()
    is_privileged: bool = False
    is_essential: bool = True
    datalist: str = ""
    placeholder: str = ""

    @property
    def id(self) -> str:
        """The id of its input in the page."""
        return f"f-{slugify(self.name.replace('.', '-').replace('_', '-'))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldGroup:
    """Fields under one title; `is_open` is how it starts."""

    id: str
    title: str
    note: str
    fields: tuple[Field, ...]
    is_open: bool = True
