"""English sentences of one: most are written for many, "1 GPUs are free", and are said as "1 GPU is free".

What a sentence counts is known when it has been filled, often in a language that has no plural. So the finished text is
put right, by the nouns that ours count; other languages have none of these words.
"""

import re

_NOUNS = """
CPUs GPUs accelerators adapters alerts allocations bands blocks bookmarks bytes calls changes channels characters
charts checkpoints collectives columns completions cores counters counts dashboards days devices digits ends engines
evaluations events examples experts files frames gaps generations groups heads hours images items kernels knobs lanes
layers layouts letters lines links metrics minutes nats nodes notes objects operators packets parameters patterns
phases pictures pixels places points problems prompts questions ranges ranks recordings repeats reports requests
responses rewards rows rules runs samples scores seconds segments sequences sessions snapshots spans stacks stages
steps streams tags tasks texts things threads tokens traces tracks updates values variables versions words workers
zeros
"""
ONE_OF = {noun: noun.removesuffix("s") for noun in _NOUNS.split()} | {
    "batches": "batch",
    "copies": "copy",
    "entries": "entry",
    "launches": "launch",
    "passes": "pass",
    "processes": "process",
    "retries": "retry",
}
_VERBS = {
    "are": "is",
    "belong": "belongs",
    "do": "does",
    "fit": "fits",
    "have": "has",
    "lie": "lies",
    "name": "names",
    "share": "shares",
}
_VERBS |= {"take": "takes", "wait": "waits"}
_VERBS["were"] = "was"
_JOINT = re.compile("a|and|as|at|for|in|is|less|of|on|or|per|than|the|to|with")
"""Words between a number and a noun that it does not count."""
_NAMED = re.compile(
    "attempt|checkpoint|core|cpu|critic|device|driver|engine|epoch|gpu|group|layer|node|number|page|policy|process|rank|"
    "reference|reward|row|run|sample|stage|step|version|vllm|worker",
    re.IGNORECASE,
)
"""Words before a number that is a name: step 1."""
_ONE = re.compile(
    r"(?<![\w.,/:×–-])(?:(?P<before>\w+) )?(?<![\w.,/:×–-])1 (?:(?P<kind>[\w-]+) )?"
    rf"(?P<noun>{'|'.join(ONE_OF)})\b(?:(?P<whose> of (?:(?:a|the) )?[a-z]+)? (?P<verb>{'|'.join(_VERBS)})\b"
    rf"(?P<rest>[^.;:,]{{0,60}}? and (?P<other>{'|'.join(_VERBS)})\b)?)?"
)


def counted(text: str) -> str:
    """Return a sentence with the nouns that it has one of in the singular, and the verb that follows."""
    return _ONE.sub(_in_singular, text) if "1 " in text else text


def _in_singular(match: re.Match[str]) -> str:
    before, kind, noun, whose, verb, rest, other = match.group(
        "before", "kind", "noun", "whose", "verb", "rest", "other"
    )
    if _NAMED.fullmatch(before or "") or _JOINT.fullmatch(kind or "") or f"{kind}s" in ONE_OF:
        return match[0]
    said = " ".join(filter(None, (before, "1", kind, f"{ONE_OF[noun]}{whose or ''}", verb and _VERBS[verb])))
    return f"{said}{rest.removesuffix(other)}{_VERBS[other]}" if rest else said
