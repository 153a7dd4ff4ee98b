"""A pasted YAML text as plain values, whoever wrote it."""

from typing import TYPE_CHECKING

from jobs.catalog.sentence import Sentence

if TYPE_CHECKING:
    import yaml

MAX_PARTS = 20_000
"""Keys and values of a text, with what it repeats by aliases; each repetition may hold others."""


class YamlUnreadable(ValueError):
    """The text is no YAML: `line` is where reading ended, from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def yaml_of(text: str) -> object:
    """Return what a YAML text says.

    Raises: YamlUnreadable; ValueError with a sentence for aliases by which a short text says more than fits.
    """
    import yaml

    try:
        if "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if root is None or _num_parts(root, {}) > MAX_PARTS:
                raise ValueError(Sentence("The YAML text repeats parts of itself by aliases (*name). Write them out."))
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        raise YamlUnreadable(where.line + 1 if where is not None else 1) from error


def _num_parts(node: "yaml.Node", counts: dict[int, int]) -> int:
    """Return how many parts a node has once its aliases are written out; too many where it holds itself."""
    if id(node) in counts:
        return counts[id(node)]
    counts[id(node)] = MAX_PARTS + 1  # what is met again before it is counted holds itself
    inner = [part for each in node.value for part in (each if isinstance(each, tuple) else (each,))]
    parts = inner if not isinstance(node.value, str) else []
    counts[id(node)] = 1 + sum(_num_parts(part, counts) for part in parts)
    return counts[id(node)]
