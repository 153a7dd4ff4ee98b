"""Sentences for people that can be said in another language later. Standard library only.

The catalogue and the adapters know no gettext, as they also run on the cluster. What they say in English is a text like
any other; who shows it to a person has it said in that person's language (`in_words`). The templates are gathered for
translators by console.labels.catalog, which finds them by the name `Sentence`.
"""

from collections.abc import Callable
from typing import Any

from profiling.counted import counted

Say = Callable[[str], str]
"""A text of the catalogue -> the same in the reader's language."""


class Sentence(str):
    """A text that knows how it was made: `template` with its {places} filled from `values`.

    Values that are sentences themselves are said in the reader's language, too; `Sentence(label)` is one of them.
    """

    __slots__ = ("template", "values")

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, /, **values: Any) -> "Sentence":
        """Fill the places, and say one as one; a template without values is taken as it stands, braces and all."""
        made = super().__new__(cls, counted(template.format(**values)) if values else template)
        made.template, made.values = template, values
        return made


def in_words(text: str, say: Say) -> str:
    """Return a text in the reader's language; one that is no sentence is looked up as it stands."""
    if not text:
        return text  # gettext would answer with its own header
    if not isinstance(text, Sentence):
        return say(text)
    template = say(text.template)
    if not text.values:
        return template
    words = {name: in_words(v, say) if isinstance(v, Sentence) else v for name, v in text.values.items()}
    return counted(template.format(**words))


def sentence_of(error: Exception) -> str:
    """Return what an error says as the sentence that it was raised with, which str(error) would lose."""
    first = error.args[0] if len(error.args) == 1 else None
    return first if isinstance(first, str) else str(error)
