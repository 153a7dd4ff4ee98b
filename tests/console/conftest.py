"""Fixtures of the console's tests: a live console for those that drive a browser."""

from tests.console.live_console import live_console, made_database  # noqa: F401 (fixtures)
