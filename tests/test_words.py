"""The field's terms instead of words of our own: in code, names of files, pages, scripts, tables, docs and tests.

A word is looked for as a word and as a part of a name: `ride`, `ride_along`, `RideAlong`. What a trainer, a library or
somebody's stored data calls so is an exception, named below.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from console.translations import messages
from tests.test_architecture import ROOT, own_code, tracked

BANNED = {
    "crew": "worker group",
    "custody": "state of a capture; file transfer",
    "doors?": "ingest endpoint; lookup; entry point",
    "hears?": "apply an event; receive; notify",
    "lay_out|laid_out": "materialize; padded",
    "last.?word": "terminal event",
    "leftovers?": "orphan processes",
    "levers?": "largest terms, change",
    "processor": "CPU",
    "reckon(s|ed|ing)?": "estimate; compute",
    "rides?|riders?|riding|ridden": "attach to a process; attempt supervisor",
    "salvaged?": "recover",
    "spell(s|ed|ing|ings)?": "option name; config key; name",
    "story": "console log lines",
    "suppos(e|ed|ing|ition)": "assume; hypothetical hardware",
    "without.signal": "zero-variance group",
}
EXCEPTIONS = {
    "last_word": ("jobs/runner/reporting/", "tests/jobs/runner/reporting/", "docs/develop/"),  # a run directory's file
    "levers": ("console/api/", "docs/use/", "tests/console/plan/"),  # the former name of a field of the API
    "without_signal": (  # a former name of a metric, and a rule, as clients ask for it
        "jobs/catalog/metrics.toml",
        "jobs/migrations/",
        "profiling/diagnosis/rules/",
        "docs/proofs/diagnosis.md",
        "tests/jobs/telemetry/test_renamed_metrics.py",
        "tests/profiling/corpus/",
        "tests/profiling/diagnosis/",
    ),
    # A file of Perfetto; what a machine calls its CPU; what a tokenizer does after it has tokenized.
    "processor": ("tests/console/captures/test_captures_api.py", "docs/proofs/", "tests/jobs/engine/data/"),
}
NAMES = {  # what a variable, parameter, field or function is not called
    "asked": "query, body, request, message",
    "found": "rows, match, estimate, by_name",
    "given": "value, text, setting",
    "kept": "cached, stored, remaining",
    "known": "choices, by_id, defaults",
    "mine": "own_rows, own_spans",
    "says": "message, reason, summary",
    "told": "reading, message, facts",
    "_look": "_observations",
    "_told": "the name of what it returns",
    "_whole": "_integer",
}
NAMES_EXCEPTED = {
    "asked": ("profiling/evidence.py",),  # of a capture: the workers that were asked for it
    "found": ("console/api/traces/schema.py", "jobs/engine/gpu_check/check.py"),  # fields of the API and of a report
    "says": (
        "console/api/guide/guide.py",
        "console/api/planner/",
        "console/api/runs/specs.py",
        "console/command_line/planner_json.py",
    ),  # fields of the API
}
NOT_NAMED_YET = ("tests/",)
SENTENCES = {
    r"told|tells no(?! pair)": "reported; reports no",
    r"(is|are) to be|is to go": "is set to; resumes",
    r"ask again": "try again",
    r"beside": "next to; in addition to; during",
    r"nothing stands|stands? still": "none; idle; does not update",
    r"whoever": "the operator; who",
    # Columns of data sets apart: "prompt and completion".
    r"longest answer|(?<!prompt and )completions?(?!, answer)": "longest response; responses: what a model generates",
    r"as a share of|^share of(?! rank)": "fraction",
    r"make (a|the) (account|project|token)": "create",
    r"without a word": "silently; without a message",
    r"divided by commas|parted by": "separated by",
    r"for ever": "forever",
    r"has these words|holds this": "matches",
    r"(not )?yours to (see|change)": "you have no access",
    r"is no (whole|number from|list|member|multiple|file name)": "is not a",
    r"taken over for|goes? for good|belong together[.] Check": "applied; is deleted permanently; do not match",
}
HISTORY = ("CHANGELOG.md",)
TEXTS = ("*.py", "*.js", "*.html", "*.css", "*.toml", "*.md", "Makefile")


def parts_of_names(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds the words by themselves, in snake_case, in capitals and at the humps of camelCase."""
    lower = "|".join(words)
    humps = "|".join(word.capitalize() for word in lower.split("|"))
    word, hump = rf"(?<![A-Za-z])(?:{lower}|{humps})(?![a-z])", rf"(?<=[a-z])(?:{humps})(?![a-z])"
    return re.compile(rf"{word}|{hump}|(?<![A-Za-z])(?:{lower.upper()})(?![A-Za-z])")


def texts() -> list[tuple[str, str]]:
    """Return the name and the text of each file that people read; the name is the first line, as it is read, too."""
    files = [path for path in tracked(*TEXTS) if own_code(path) and path != Path(__file__)]
    named = [(str(path.relative_to(ROOT)), path) for path in files]
    return [(name, f"{name}\n{path.read_text(encoding='utf-8')}") for name, path in named if name not in HISTORY]


def is_excepted(name: str, word: str) -> bool:
    return any(name.startswith(prefix) for prefix in EXCEPTIONS.get(word.lower(), ()))


def line_of(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start())


def term_for(word: str) -> str:
    return next(term for banned, term in BANNED.items() if re.fullmatch(banned, word, re.IGNORECASE))


def names_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return the names that a module gives to variables, parameters, fields and functions, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def test_nothing_is_named_by_a_participle_alone() -> None:
    """A name says what a thing is (`rows`, `estimate`), not that it was found, given or kept."""
    wrong = [
        f"{name}:{line}: {word} is: {NAMES[word]}"
        for name, text in texts()
        if name.endswith(".py") and not name.startswith(NOT_NAMED_YET)
        for word, line in names_of(ast.parse(text.partition("\n")[2]))
        if word in NAMES and not name.startswith(NAMES_EXCEPTED.get(word, ()))
    ]
    assert wrong == []


def test_nothing_is_called_by_a_word_of_our_own() -> None:
    banned = parts_of_names(BANNED)
    found = [
        f"{name}:{line_of(text, match)}: {match.group()} is: {term_for(match.group())}"
        for name, text in texts()
        for match in banned.finditer(text)
        if not is_excepted(name, match.group())
    ]
    assert found == []


def test_no_sentence_of_a_page_is_bent() -> None:
    """English that an engineer would write; the texts are those that are translated."""
    bent = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in SENTENCES), re.IGNORECASE)
    found = [
        f"{catalog.name}: {match.group()!r} in {text!r}"
        for catalog in tracked("console/locale/*.po")
        for text in messages(catalog)
        for match in bent.finditer(text)
    ]
    assert found == []
