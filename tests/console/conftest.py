"""Fixtures of the console's tests: a live console and a window on it for those that drive a browser."""

from tests.console.live_console import live_console, made_database  # noqa: F401 (fixtures)
from tests.console.window import page  # noqa: F401 (fixture)
