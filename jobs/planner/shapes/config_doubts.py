"""What a count rests on, by what its config says beside the keys that were read."""

import re

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.class_defaults import class_sizes, class_stem, class_stems
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.mixtures import EXPERTS
from jobs.planner.shapes.neutral_keys import IMPLIED, NEUTRAL, is_size_of_its_own


def doubts_of_unknown(text: ConfigValues, kind: str) -> tuple[str, ...]:
    """Return what a count rests on that nobody checked, with the keys of its config that nobody understood."""
    said = [Sentence("Its model type {kind} is not known: counted as most decoders are built.", kind=text.shown(kind))]
    foreign = [key for key in text.left() if key not in NEUTRAL]
    if foreign:
        said.append(Sentence("These keys of its config were not understood: {keys}.", keys=", ".join(foreign[:12])))
    return tuple(said)


def doubts_of_known(outer: ConfigValues, text: ConfigValues, kind: str, *, is_tied: bool) -> tuple[str, ...]:
    """Return what makes the config of a type that is known another model than that type's: a class that is not its
    own, sizes that nobody asked for."""
    said: list[str] = []
    names = next((each.items("architectures", str) for each in (outer, text) if each.has("architectures")), None) or ()
    stems = class_stems(kind) | class_stems(str(outer.value("model_type")))
    if names and not any(_is_decoder(name, stems, is_tied=is_tied) for name in names):
        shown = text.shown(", ".join(names))
        said.append(
            Sentence(
                "Its architectures name {names}: counted as {kind} with a head for its vocabulary.",
                names=shown,
                kind=text.shown(kind),
            )
        )
    usual = NEUTRAL | IMPLIED | class_sizes(kind)
    sizes = [
        key for key in text.left() if key not in usual and is_size_of_its_own(text, key) and not _is_twice(text, key)
    ]
    if sizes:
        said.append(Sentence("These keys of its config were not understood: {keys}.", keys=", ".join(sizes[:12])))
    return tuple(said)


def _is_twice(text: ConfigValues, key: str) -> bool:
    """Return True for the experts of a mixture under a second name."""
    return key in EXPERTS and any(
        other in text.read_keys and text.values.get(other) == text.values[key] for other in EXPERTS if other != key
    )


_CLASS = re.compile(r"(?P<stem>.+?)(?P<end>ForCausalLM|LMHeadModel|ForConditionalGeneration|For[A-Z]\w*|Model)")


def _is_decoder(name: str, stems: frozenset[str], *, is_tied: bool) -> bool:
    """Return True if a class is a language model of one of these stems, or one without its head where that is tied;
    of a type that transformers does not have any stem will do."""
    parts = _CLASS.fullmatch(name)
    if parts is None or (stems and class_stem(parts["stem"]) not in stems):
        return False
    return parts["end"] in _WITH_HEAD or (parts["end"] == "Model" and is_tied)


_WITH_HEAD = frozenset({"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"})
