"""uv in pip's place: the same locks, hashes and indexes in a fraction of the time. Standard library only.

uv is itself a locked wheel (installer.lock), which pip puts into the environment. It does not read pip's configuration:
what that says of indexes, certificates and the network is handed over, in variables, which no list of processes shows.
"""

from __future__ import annotations

import ast
import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECTIONS = ("global", "install", ":env:")
"""Of pip's configuration, as `pip install` reads it: a later one counts for more."""
HANDED_OVER = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}
"""Which variables of uv say the same as an option of pip's; lists are separated by blanks, find-links by commas."""
NOT_KNOWN = ("no-index", "keyring-provider", "use-feature", "use-deprecated", "target", "prefix", "root", "user")
"""What changes from where or to where pip installs, and is not handed over: pip does it itself."""


class UvUnusable(Exception):
    """uv cannot stand in for pip here; the sentence says why."""


def pip_options(listed: str) -> dict[str, str]:
    """Return the options that hold for `pip install`, by name, of the lines of `pip config list`."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        key, equals, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if equals and section in by_section:
            by_section[section][option] = str(ast.literal_eval(value))
    return {option: value for section in SECTIONS for option, value in by_section[section].items()}


def handed_over(options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tell uv what these options tell pip.

    Several indexes are one pool for pip, and hashes choose: hence the strategy. Raises: UvUnusable.
    """
    strange = [option for option in NOT_KNOWN if option in options]
    if strange:
        raise UvUnusable(f"pip is configured with {strange[0]}, which uv has no like of")
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1"}
    for option, names in HANDED_OVER.items():
        if words := options.get(option, "").split():
            separator = "," if option == "find-links" else " "
            variables |= dict.fromkeys(names, separator.join(words))
    return variables


LAST_ONE = "django-ninja"
"""Its module `ninja` has the name of that of a build tool which DeepSpeed asks for, and who is installed last has it.
pip installs this one after the other; uv has no order."""


class Uv:
    """The uv of an environment, told what pip is told. Raises: UvUnusable."""

    def __init__(self, venv: Path) -> None:
        self._program, self._python = venv / "bin" / "uv", venv / "bin" / "python"
        query = [str(self._python), "-m", "pip", "config", "list"]
        done = subprocess.run(query, check=False, capture_output=True, text=True)
        if done.returncode:
            raise UvUnusable(f"pip does not say how it is configured: {last_line(done.stderr)}")
        self._variables = handed_over(pip_options(done.stdout))

    def install(self, *arguments: str) -> None:
        """Run `uv pip install` in the environment, with options that pip has too. Raises: UvUnusable."""
        command = [str(self._program), "pip", "install", "-q", "--python", str(self._python), "--no-deps", *arguments]
        env = {**os.environ, **self._variables, "DS_BUILD_OPS": "0"}
        try:
            done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        except OSError as error:
            raise UvUnusable(f"uv does not start: {error.strerror or error}") from error
        if done.returncode:
            raise UvUnusable(last_line(done.stderr))


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason given")
