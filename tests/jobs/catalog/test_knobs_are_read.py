"""A knob in the catalogue does something: the built-in trainer reads it, and reads no other."""

import ast
import inspect
from pathlib import Path

import jobs.engine
from jobs.catalog import role
from jobs.catalog.knob import knobs
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec

NATIVE = {knob.id for knob in knobs().values() if "native" in knob.trainers}
READERS = {"knob", "int_knob", "float_knob"}


def engine() -> list[ast.AST]:
    files = sorted(Path(jobs.engine.__path__[0]).rglob("*.py"))
    return [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]


def texts(nodes: list[ast.AST]) -> set[str]:
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_the_engine_reads_every_knob_that_the_catalogue_gives_it() -> None:
    nodes = engine()
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    properties = [
        n
        for n in ast.walk(ast.parse(inspect.getsource(RunSpec)))
        if isinstance(n, ast.FunctionDef) and n.name in attributes
    ]
    table = ast.parse(inspect.getsource(role))  # of workers, which the engine places by it
    derived = [ast.parse(inspect.getsource(DERIVED[name])) for name in texts(nodes) & set(DERIVED)]
    read = texts(nodes) | {text for found in [*properties, *derived, table] for text in texts(list(ast.walk(found)))}

    assert sorted(NATIVE - read) == []


def test_the_engine_reads_no_knob_that_the_catalogue_does_not_give_it() -> None:
    calls = [
        n for n in engine() if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in READERS
    ]
    asked = {
        text for call in calls for argument in call.args for text in texts(list(ast.walk(argument))) if "." in text
    }

    assert asked
    assert sorted(asked - NATIVE) == []
