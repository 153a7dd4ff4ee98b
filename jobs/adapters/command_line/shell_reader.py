"""A pasted shell command, read and never run: its words, the variables set before it, and what started it.

Understood are quotes, line continuations, comments, assignments (also arrays, and texts read from a here-document, as
the frameworks' own example scripts have them), variables set in the same text, and chains of commands. What only a
shell could tell (`$(date)`, variables that are set elsewhere) stays as it is written, for the adapter to name.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.catalog.sentence import Sentence

MAX_CHARACTERS = 200_000
MAX_WORDS = 20_000
MAX_UNKNOWN = 500
"""Pieces of a text that only a shell could fill in. More of them, or of words, no script has; they take minutes."""

TOO_DEEP = Sentence("The text holds brackets or quotes within each other deeper than any command has them.")
MAX_HINTS = 50
"""What stayed behind gets the name that was likely meant up to here: each takes a search through all names."""

_TOO_MANY = Sentence("The text has more than {most} words; no command has so many.", most=f"{MAX_WORDS:,}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_ALL_ARGUMENTS = ("@", "*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_ENDS = ";\n|&"
_REDIRECTS = re.compile(r"\d+[<>]|&>")
_REDIRECTION = re.compile(r"\d*(<<<|<<-?|>>|<|>)&?\d*|&>>?")
_SETTERS = ("env", "sudo", "--")  # behind them words A=b are variables of what is started; Ray runs a shell behind --
_CONTAINERS = ("docker", "podman")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|\d+|[@*])(\[[@*]\])?(?::?([-=])([^}]*))?\}|([A-Za-z_]\w*|\d|[@*#?]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command: the variables set for it, its words, and what in them only a shell could fill in."""

    env: Mapping[str, str]
    words: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """A trainer's command found in a text.

    `program` is the word that named it, `arguments` what follows it, `before` what stands before it (the launcher with
    its options), `env` every variable that it would see set. `unknown` is what only a shell could have filled in.
    """

    program: str
    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def find_program(
    text: str, is_program: Callable[[str], bool], is_argument: Callable[[str], bool] = lambda _: True
) -> ProgramCall | None:
    """Return the first command of the text that starts a program which `is_program` knows; None if there is none.

    `is_argument` says what may follow a name that is a plain word, too: `pip install NAME` does not start NAME.

    Raises: ValueError with a sentence if the text is no shell command (a quote that never ends).
    """
    return _find(text, is_program, is_argument, [MAX_CHARACTERS])


def _find(
    text: str, is_program: Callable[[str], bool], is_argument: Callable[[str], bool], room: list[int]
) -> ProgramCall | None:
    """`room` is for texts within the text, all together: one may hold another many times over, at every level."""
    for command in commands_of(text):
        for place, word in enumerate(command.words):
            if is_program(word) and is_argument(next(iter(command.words[place + 1 :]), "")):
                return ProgramCall(
                    program=word,
                    arguments=command.words[place + 1 :],
                    before=command.words[:place],
                    env={**command.env, **_env_of(command.words[:place])},
                    unknown=command.unknown,
                )
            if "\n" in word or " " in word:  # bash -c "..."
                room[0] -= len(word)
                is_worth = room[0] >= 0 and _may_hold(word, is_program)
                inner = _find(word, is_program, is_argument, room) if is_worth else None
                if inner is not None:
                    return inner
    return None


def commands_of(text: str) -> list[Command]:
    """Return the simple commands of a text, in order. Raises: ValueError with a sentence."""
    if len(text) > MAX_CHARACTERS:
        words = {"count": f"{len(text):,}", "most": f"{MAX_CHARACTERS:,}"}
        raise ValueError(Sentence("The text has {count} characters; a command has at most {most}.", **words))
    return _ShellReader(text.replace("\r\n", "\n")).commands()


def _may_hold(word: str, is_program: Callable[[str], bool]) -> bool:
    return any(is_program(part.strip("'\"")) for part in word.split())


def _env_of(before: Sequence[str]) -> dict[str, str]:
    """Return what a launcher's words set: `env A=b`, a container's `-e A=b`, and Ray's runtime environment."""
    environment: dict[str, str] = {}
    programs: set[str] = set()
    for place, word in enumerate(before):
        sets = programs & {*_SETTERS} or (programs & {*_CONTAINERS} and before[place - 1] in ("-e", "--env"))
        if (assignment := _ASSIGNMENT.fullmatch(word.removeprefix("--env="))) and (sets or word.startswith("--env=")):
            environment[assignment[1]] = assignment[2]
        programs.add(word.rpartition("/")[2])
        name, _, value = word.partition("=")
        if name == "--runtime-env-json":
            value = value or (before[place + 1] if place + 1 < len(before) else "")
            try:
                runtime_env = json.loads(value).get("env_vars", {})
                environment |= {str(key): str(value) for key, value in runtime_env.items()}
            except (ValueError, AttributeError):
                continue  # the launcher's business; the trainer's own words are read all the same
    return environment


class _ShellReader:
    """Walks through a text once; variables take their values as the text sets them."""

    def __init__(
        self, text: str, variables: Mapping[str, str | list[str]] | None = None, room: list[int] | None = None
    ) -> None:
        self.text = text
        self.at = 0
        self.num_words = 0
        self.room = room or [10 * MAX_CHARACTERS]  # for what variables hold: A=$A$A doubles with every line
        self.variables: dict[str, str | list[str]] = dict(variables or {})
        self.env: dict[str, str] = {}  # what was exported or assigned on the way
        self.ended: list[Command] = []
        self.unknown: list[str] = []
        self.documents: list[tuple[str, bool, bool]] = []  # ending word, strips tabs, is literal

    def commands(self) -> list[Command]:
        words: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _ENDS:
                self.at += 1
                document = self._documents() if char == "\n" else ""
                self._end(words, document)
                words = []
            elif char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in "<>" or _REDIRECTS.match(self.text, self.at):
                self._redirection()
            elif char in "()":
                self.at += 1  # a subshell: its commands stand in the order of the text
            else:
                words += self._word()
                self.num_words += 1
                if max(self.num_words, len(words)) > MAX_WORDS:
                    raise ValueError(_TOO_MANY)
        self._end(words, "")
        return self.ended

    def _end(self, words: list[str], document: str) -> None:
        """Take a finished command: an assignment is kept, anything else is one of the commands."""
        own: dict[str, str] = {}
        while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):
            own[assignment[1]] = assignment[2]
            words = words[1:]
        if not words:
            self.variables |= own
            self.env |= {name: value for name, value in own.items() if name in self.env}
            return
        if words[0] in ("export", "declare", "local", "readonly"):
            self._declare(words[1:], is_export=words[0] == "export")
            return
        if words[0] == "read" and document and _NAME.fullmatch(words[-1]):
            self.variables[words[-1]] = document
            return
        held = [piece for piece in dict.fromkeys(self.unknown) if any(piece in word for word in words)]
        self.ended.append(Command(env={**self.env, **own}, words=tuple(words), unknown=tuple(held)))

    def _declare(self, words: Sequence[str], *, is_export: bool) -> None:
        for word in words:
            name, sign, value = word.partition("=")
            if sign:
                self.variables[name] = value
            held = self.variables.get(name)
            if is_export and isinstance(held, str):
                self.env[name] = held

    def _redirection(self) -> None:
        matched = _REDIRECTION.match(self.text, self.at)
        assert matched is not None
        self.at = matched.end()
        if matched[0].endswith(("<<", "<<-")):
            self._skip_blanks()
            is_literal = self.at < len(self.text) and self.text[self.at] in "'\"\\"
            ending = "".join(self._word())
            self.documents.append((ending, matched[0].endswith("-"), is_literal))
        elif not matched[0][-1].isdigit():
            self._skip_blanks()
            self._word()

    def _documents(self) -> str:
        """Return the last of the here-documents that begin on the line just ended."""
        body = ""
        for ending, strips_tabs, is_literal in self.documents:
            lines: list[str] = []
            while self.at < len(self.text):
                line, _, _ = self.text[self.at :].partition("\n")
                self.at += len(line) + 1
                line = line.lstrip("\t") if strips_tabs else line
                if line.strip() == ending:
                    break
                lines.append(line)
            body = "\n".join(lines)
            if not is_literal:
                body = self._expanded(body.replace("\\\n", " "))
        self.documents = []
        return body

    def _skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _word(self) -> list[str]:
        """Return the word here; several, or none, where a variable that is not quoted holds so many."""
        parts: list[str] = [""]
        is_given = False  # "" is a word, an empty variable is none
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;|&<>()" and not self._opens_array(start):
                break
            if char == "(":
                return self._array(self.text[start : self.at - 1])
            if char == "\\":
                parts[-1] += "" if self.text.startswith("\\\n", self.at) else self.text[self.at + 1 : self.at + 2]
                self.at += 2
                is_given = True
            elif char == "'":
                parts[-1] += self._until("'")
                is_given = True
            elif self.text.startswith("$'", self.at):
                self.at += 1
                parts[-1] += re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), self._until("'", escapes=True))
                is_given = True
            elif char == '"':
                quoted = self._until('"', escapes=True)
                if (whole := re.fullmatch(r"\$\{(\w+)\[@\]\}", quoted)) or quoted == "$@":
                    items = self.variables.get(whole[1], []) if whole else []
                    self._join(parts, items if isinstance(items, list) else [items])
                else:
                    parts[-1] += self._expanded(quoted, is_quoted=True)
                    is_given = True
            elif char == "$":
                self._join(parts, self._variable())
            elif char == "`":
                parts[-1] += self._left(f"`{self._until('`')}`")[0]
            else:
                parts[-1] += char
                self.at += 1
        return [part for part in parts if part or is_given]

    @staticmethod
    def _join(parts: list[str], more: list[str]) -> None:
        """Put the words of a variable onto the end of a word."""
        if len(parts) + len(more) > MAX_WORDS:
            raise ValueError(_TOO_MANY)
        if more:
            parts[-1] += more[0]
            parts += more[1:]

    def _opens_array(self, start: int) -> bool:
        return self.text[self.at] == "(" and re.fullmatch(r"[A-Za-z_]\w*\+?=", self.text[start : self.at]) is not None

    def _array(self, name: str) -> list[str]:
        """Take `NAME=( words )`; the text stands at the opening parenthesis."""
        items: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] in " \t\n":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                before = self.at
                items += self._word()
                self.at += self.at == before
        self.at += 1
        is_more = name.endswith("+")
        earlier = self.variables.get(name.rstrip("+"), []) if is_more else []
        self.variables[name.rstrip("+")] = [*(earlier if isinstance(earlier, list) else [earlier]), *items]
        return []

    def _until(self, quote: str, *, escapes: bool = False) -> str:
        """Return what stands between the quote here and the next one, and go past it."""
        begin = self.at = self.at + 1
        while self.at < len(self.text) and self.text[self.at] != quote:
            self.at += 2 if escapes and self.text[self.at] == "\\" else 1
        if self.at >= len(self.text):
            message = "The text is no complete command: a {quote} is opened and never closed."
            raise ValueError(Sentence(message, quote=quote))
        self.at += 1
        return self.text[begin : self.at - 1]

    def _left(self, piece: str) -> list[str]:
        """Leave a piece as it is written: only a shell could tell."""
        if len(piece) > 1 and piece not in self.unknown:  # a lone $ is itself
            self.unknown.append(piece)
            if len(self.unknown) > MAX_UNKNOWN:
                message = "Only a shell could fill in more than {most} places of the text."
                raise ValueError(Sentence(message, most=MAX_UNKNOWN))
        return [piece]

    def _expanded(self, text: str, *, is_quoted: bool = False) -> str:
        """Return a text with the variables in it replaced; in quotes, a backslash protects some characters."""
        inner = _ShellReader(text, self.variables, self.room)
        inner.unknown = self.unknown
        out = ""
        while inner.at < len(text):
            char = text[inner.at]
            if char == "\\" and is_quoted and text[inner.at + 1 : inner.at + 2] in ('"', "\\", "$", "`", "\n"):
                out += text[inner.at + 1].replace("\n", "")
                inner.at += 2
            elif char == "$":
                out += " ".join(inner._variable(splits=False))
            else:
                out += char
                inner.at += 1
        return out

    def _variable(self, *, splits: bool = True) -> list[str]:
        """Return the words of the `$...` here and go past it; as it is written where only a shell could tell."""
        begin = self.at
        matched = _VARIABLE.match(self.text, begin)
        if matched is None:
            self.at = _end_of_unknown(self.text, begin)
            return self._left(self.text[begin : self.at])
        self.at = matched.end()
        name = matched[1] or matched[5]
        if name in _ALL_ARGUMENTS:
            return []
        if name in self.variables:
            value = self.variables[name]
            self.room[0] -= sum(map(len, value)) + 1
            if self.room[0] < 0:
                raise ValueError(Sentence("The variables of the text grow beyond what a command can hold."))
            if isinstance(value, list):
                return list(value) if matched[2] else value[:1]
        elif matched[3]:
            value = self._expanded(matched[4])
        else:
            return self._left(matched[0])
        is_whole = not splits or any(piece in value for piece in self.unknown)  # a shell would put in what has no blank
        return [value] if is_whole else _reread(value)


def _reread(value: str) -> list[str]:
    """Return the words that a variable's text is split into where it is not quoted."""
    return value.replace("\\\n", " ").split()


def _end_of_unknown(text: str, begin: int) -> int:
    """Return where the `$(...)`, `${...}` or lone `$` that begins there ends."""
    if text.startswith("${", begin):
        return (text.find("}", begin) + 1) or len(text)
    if not text.startswith("$(", begin):
        return begin + 1
    depth = 0
    for place in range(begin + 1, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return len(text)
