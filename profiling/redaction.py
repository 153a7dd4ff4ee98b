"""Take secrets out of reports and texts before anybody gets them.

nsys writes the environment of each process that it saw into its report, and everybody who may see the run may download
that: with Ray's token they could run code on the cluster. The bytes are overwritten in place, as many as there were,
so the report stays one (held against nsys 2022.4, whose reports keep texts as they are).

In texts (log lines, causes, commands) known secrets are hidden by their value, and what looks like one by its shape:
tokens of known makers, passwords in addresses, what is assigned to a name like API_KEY. Hashes, ids and pictures stay.
"""

import base64
import json
import mmap
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

MIN_BYTES = 8  # what is shorter is no secret, and may stand anywhere
_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)|COOKIE|WEBHOOK|CONNECTION_?STRING|(^|_)(API_?)?KEY(_ID)?$|ACCESS_?KEY"
    r"|PRIVATE_?KEY|(^|_)(PAT|DSN)$|_PWD$|(^|_)SAS(_URL)?$",  # not PWD and PATH
    re.I,
)
_PASSWORD = re.compile(r"://[^/@\s]*?:([^/@\s]+)@")  # in an address: scheme://user:password@host
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
      eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}                # a JSON Web Token
    | hf_[A-Za-z0-9]{20,}
    | sk-(?=[\w-]*\d)[\w-]{20,}
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{22,}
    | glpat-[\w-]{16,}
    | xox[abeoprs]-[A-Za-z0-9-]{10,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
    | AIza[\w-]{35}
    | pw_[\w-]{40,}                                         # our own
    )""",
    re.X | re.A,
)
_PLACES = re.compile(
    r"""
      (?P<address>://[^/@\s"'\\:]{0,200}:)[^/@\s"'\\]+(?=@)
    | (?P<header>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}
    | (?P<variable>\b[A-Z][A-Z0-9_]{0,60}?(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|_PWD
      |_PAT|_DSN)=)
      [^\s"'\\,;&]{8,}
    | (?P<field>\b(?:AccountKey|SharedAccess(?:Key|Signature)|password|passwd|pwd|secret|api[_-]?key|access[_-]?token
      |client[_-]?secret|sig|signature)=)[^\s"'\\,;&]{8,}
    | (?P<encoded>(?<![\w+/])(?!\w{0,60}(?i:sha|md5|digest|sum|hash|etag|integrity))[A-Za-z_]\w{0,60}=)
      (?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*[0-9])[A-Za-z0-9+/]{40,126}={1,2}(?![A-Za-z0-9+/=])
    """,
    re.X | re.A,
)
_HINTS = re.compile(r"[=@]|eyJ|hf_|sk-|gh|glpat|xox|A[KSI]I|pw_|Bearer|Basic")  # most lines have none of these
_HIDDEN = "***"
_OWN = Path("/proc/self/environ")
SECRET_NAMES = "PITWALL_SECRETS"  # noqa: S105 (a variable that names variables which are secrets, whatever they are called)
_remembered: set[bytes] = set()


def secrets_of(environ: Mapping[str, str]) -> frozenset[bytes]:
    """Return the values in an environment that are secrets: by the variable's name, by shape, in addresses, in JSON.

    Those that PITWALL_SECRETS names are, too, and each line of them.
    """
    values = {value for name, text in environ.items() for value in _secrets(name, text)}
    named = [environ[name] for name in environ.get(SECRET_NAMES, "").split() if name in environ]
    return _long_enough(values) | _long_enough(_with_lines(named))


def remember(secrets: Iterable[str]) -> None:
    """Take texts that this process was handed for secrets of its own, and each line of them, from now on."""
    _remembered.update(_long_enough(_with_lines(secrets)))


def own_secrets() -> frozenset[bytes]:
    """Return the secrets of this process: of its environment now and when it was started, and what it was handed."""
    try:
        parts = _OWN.read_bytes().split(b"\0")
    except OSError:  # not Linux
        parts = []
    started = dict(os.fsdecode(part).split("=", 1) for part in parts if b"=" in part)
    return secrets_of(os.environ) | secrets_of(started) | _remembered


def overwrite(path: Path, secrets: Collection[bytes]) -> int:
    """Replace each secret in the file by as many `*`; return how many there were. Raises: OSError."""
    count = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for secret in sorted(secrets, key=len, reverse=True):  # one may be part of another
            at = data.find(secret)
            while at >= 0:
                data[at : at + len(secret)] = b"*" * len(secret)
                count += 1
                at = data.find(secret, at + len(secret))
    return count


class Mask:
    """Overwrites secrets in bytes by as many `*`, in each form that texts hold them in, so that no length changes.

    `reach` is the length of the longest: whoever masks a piece reads so much around it.
    """

    def __init__(self, secrets: Collection[bytes]) -> None:
        forms = {os.fsencode(form) for secret in secrets for form in _forms(os.fsdecode(secret))}
        self.reach = max(map(len, forms), default=0)
        ordered = sorted(forms, key=len, reverse=True)  # one may be part of another
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if forms else None

    def __call__(self, data: bytes) -> bytes:
        """Return the bytes without secrets."""
        return self._pattern.sub(lambda match: b"*" * len(match[0]), data) if self._pattern else data


def hide(text: str) -> str:
    """Return the text with what looks like a secret as `***`."""
    if not _HINTS.search(text):
        return text
    return _PLACES.sub(lambda match: match[match.lastgroup or 0] + _HIDDEN, _SHAPES.sub(_HIDDEN, text))


def hide_in(value: Any) -> Any:
    """Return the texts of a JSON value as `hide` leaves them; names of its fields stay."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {key: hide_in(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hide_in(inner) for inner in value]
    return value


def hider(secrets: Collection[bytes]) -> Callable[[str], str]:
    """Return what takes these secrets out of a text: as they are, as JSON, Python and addresses write them, base64."""
    forms = {form for secret in secrets for form in _forms(os.fsdecode(secret))}
    if not forms:
        return str
    pattern = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
    return lambda text: pattern.sub(_HIDDEN, text)


def _forms(text: str) -> tuple[str, ...]:
    encoded = base64.b64encode(os.fsencode(text)).decode()
    whole = encoded[: len(encoded) - 4 * encoded.endswith("=")]  # its end changes with what follows it
    in_json = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    in_python = (repr(text)[1:-1], repr(os.fsencode(text))[2:-1])
    in_addresses = (quote(os.fsencode(text), safe=safe) for safe in ("", "/", "!'()*"))
    return (text, *in_json, *in_python, *in_addresses, quote_plus(os.fsencode(text)), whole)


def _with_lines(texts: Iterable[str]) -> set[str]:
    """Return texts and the lines of those that have several: logs are looked through line by line."""
    return {part for text in texts for part in (text, text.strip(), *map(str.strip, text.splitlines()))}


def _long_enough(texts: Iterable[str]) -> frozenset[bytes]:
    return frozenset(raw for raw in map(os.fsencode, texts) if len(raw) >= MIN_BYTES)


def _secrets(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secrets(str(key), inner)
    elif isinstance(value, str):
        if _NAME.search(name):
            yield value
        yield from _PASSWORD.findall(value)
        yield from _SHAPES.findall(value)
        if value.startswith("{"):  # Ray's job configuration, with the variables of the job in it
            try:
                yield from _secrets("", json.loads(value))
            except (ValueError, RecursionError):
                return
