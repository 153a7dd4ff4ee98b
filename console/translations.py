"""Compile console/locale/*.po, as gettext's msgfmt would but without it: `python -m console.translations`.

Compiled catalogs are not in git. Every process of the console looks when it starts (`ConsoleConfig.ready`) and compiles
what is missing or was made of another text: a compiled catalog holds the digest of the text that it was made of.
"""

import ast
import hashlib
import logging
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path

LOCALE = Path(__file__).with_name("locale")
_DIGEST = "X-Source-Digest"
_MAGIC = 0x950412DE
_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr)(?:\[(\d+)\])? )?(".*")')

log = logging.getLogger(__name__)


class CatalogUnreadable(ValueError):
    """A .po file has a line that is none; the message names file, line and text."""


def compile_catalogs(folder: Path = LOCALE) -> list[Path]:
    """Compile what is not compiled yet; return the catalogs that were written.

    Where the folder cannot be written, pages stay in English, and the log says so.
    Raises: CatalogUnreadable.
    """
    written = []
    for source in sorted(folder.glob("*/LC_MESSAGES/*.po")):
        text = source.read_bytes()
        digest = hashlib.sha256(text).hexdigest()
        compiled = source.with_suffix(".mo")
        if compiled.is_file() and f"{_DIGEST}: {digest}\n".encode() in compiled.read_bytes():
            continue
        part = compiled.with_name(f"{compiled.name}.{os.getpid()}")
        try:
            part.write_bytes(_compiled(_messages(text.decode(), source.name), digest))
            part.replace(compiled)  # complete or not at all, whoever else does the same
        except OSError as error:
            log.warning("%s is not compiled, so its texts stay in English: %s", source, error)
        else:
            written.append(compiled)
    return written


def messages(source: Path) -> dict[str, str]:
    """Return the entries of a .po file as a compiled catalog has them; a missing or fuzzy translation is empty.

    A key is the text; `context\\x04text` where it has a context, `text\\0plural` where it has a plural, whose forms are
    joined by `\\0`. The empty text has the header.
    Raises: CatalogUnreadable.
    """
    return _messages(source.read_text(encoding="utf-8"), source.name)


def _messages(text: str, name: str) -> dict[str, str]:
    translated: dict[str, str] = {}
    is_fuzzy = False
    parts: dict[str, str] = {}
    current = ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.startswith("#"):
            is_fuzzy |= line.startswith("#,") and "fuzzy" in line
        elif match := _LINE.fullmatch(line):
            keyword, index, quoted = match.groups()
            current = f"{keyword}{index or ''}" if keyword else current
            parts[current] = parts.get(current, "") + ast.literal_eval(quoted)
        elif line.strip():
            raise CatalogUnreadable(f"{name}, line {number}: {line!r} is neither an entry, nor a text, nor a comment.")
        elif parts:
            forms = [parts[key] for key in sorted(parts) if key.startswith("msgstr")]
            translated[_key(parts)] = "" if is_fuzzy or not all(forms) else "\0".join(forms)
            is_fuzzy, parts = False, {}
    return translated


def _key(parts: dict[str, str]) -> str:
    context = f"{parts['msgctxt']}\x04" if "msgctxt" in parts else ""
    plural = f"\0{parts['msgid_plural']}" if "msgid_plural" in parts else ""
    return f"{context}{parts['msgid']}{plural}"


def _compiled(entries: Mapping[str, str], digest: str) -> bytes:
    """Return the catalog as gettext reads it: two tables of lengths and offsets, then the texts, sorted.

    Source: GNU gettext manual, "The Format of GNU MO Files".
    """
    texts = {key: text for key, text in entries.items() if text}
    texts[""] = f"{texts.get('', '')}{_DIGEST}: {digest}\n"
    pairs = sorted((key.encode(), text.encode()) for key, text in texts.items())
    head = struct.calcsize("<7I")
    offset = head + 16 * len(pairs)
    tables = []
    for column in (0, 1):
        for pair in pairs:
            tables.append(struct.pack("<2I", len(pair[column]), offset))
            offset += len(pair[column]) + 1
    start = struct.pack("<7I", _MAGIC, 0, len(pairs), head, head + 8 * len(pairs), 0, head + 16 * len(pairs))
    return start + b"".join(tables) + b"".join(pair[column] + b"\0" for column in (0, 1) for pair in pairs)


if __name__ == "__main__":
    for path in compile_catalogs():
        print(path)
