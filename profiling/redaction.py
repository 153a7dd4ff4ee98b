"""Take secrets out of a report before anybody gets it.

nsys writes the environment of each process that it saw into its report, and everybody who may see the run may download
that: with Ray's token they could run code on the cluster. The bytes are overwritten in place, as many as there were,
so the report stays one (held against nsys 2022.4, whose reports keep texts as they are).
"""

import json
import mmap
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

MIN_BYTES = 8  # what is shorter is no secret, and may stand anywhere
_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|(^|_)(API_?)?KEY(_ID)?$|ACCESS_?KEY|PRIVATE_?KEY", re.I)
_PASSWORD = re.compile(r"://[^/@\s]*?:([^/@\s]+)@")  # in an address: scheme://user:password@host
_OWN = Path("/proc/self/environ")


def secrets_of(environ: Mapping[str, str]) -> frozenset[bytes]:
    """Return the values in an environment that are secrets: by the variable's name, in addresses, in JSON values."""
    values = {value for name, text in environ.items() for value in _secrets(name, text)}
    return frozenset(raw for raw in (os.fsencode(value) for value in values) if len(raw) >= MIN_BYTES)


def own_secrets() -> frozenset[bytes]:
    """Return the secrets of this process: of its environment now, and of the one it was started with."""
    try:
        parts = _OWN.read_bytes().split(b"\0")
    except OSError:  # not Linux
        parts = []
    started = dict(os.fsdecode(part).split("=", 1) for part in parts if b"=" in part)
    return secrets_of(os.environ) | secrets_of(started)


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


def _secrets(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secrets(str(key), inner)
    elif isinstance(value, str):
        if _NAME.search(name):
            yield value
        yield from _PASSWORD.findall(value)
        if value.startswith("{"):  # Ray's job configuration, with the variables of the job in it
            try:
                yield from _secrets("", json.loads(value))
            except (ValueError, RecursionError):
                return
