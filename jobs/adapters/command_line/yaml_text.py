"""A pasted YAML text as plain values, whoever wrote it."""

from jobs.catalog.sentence import Sentence


class YamlUnreadable(ValueError):
    """The text is no YAML: `line` is where reading ended, from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def yaml_of(text: str) -> object:
    """Return what a YAML text says.

    Raises: YamlUnreadable; ValueError with a sentence for aliases, by which a short text can say more than fits.
    """
    import yaml

    try:
        if "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise ValueError(Sentence("The YAML text repeats parts of itself by aliases (*name). Write them out."))
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        raise YamlUnreadable(where.line + 1 if where is not None else 1) from error
