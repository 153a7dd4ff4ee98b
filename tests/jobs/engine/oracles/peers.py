"""The peers' own functions, out of the wheels of requirements/frameworks.txt: what ours are held against.

    core = peer("verl-0.9.1", "verl.trainer.ppo.core_algos")
    core.compute_rloo_outcome_advantage(...)

A peer's module is read, not imported: of its file only the definition that is asked for is run, and what that one
refers to, in its own module and in the peer's other modules. So nothing of a peer's dependencies has to be installed
beyond what the function itself uses, and not one line of it is ours. What is not installed and still named is an
`Absent`, which raises as soon as it is used. A function that imports inside its body finds what is installed here.
"""

import __future__

import ast
import importlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.conformance.unpacked_wheels import unpacked

VERL = "verl-0.9.1"
OPENRLHF = "openrlhf-0.11.2"
TRL = "trl-1.16.0"


class Absent:
    """Stands for what is not installed. Raises: ImportError naming it as soon as it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise ImportError(f"{self._name}.{attribute} is used, and {self._name} is not installed.")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise ImportError."""
        raise ImportError(f"{self._name} is called, and it is not installed.")


class PeerModule(ModuleType):
    """A module of a peer whose definitions are run when they are first asked for."""

    def __init__(self, wheel: str, name: str) -> None:
        super().__init__(f"{wheel}:{name}")
        folder = unpacked(wheel).joinpath(*name.split("."))
        self._wheel = wheel
        self._is_package = not folder.with_suffix(".py").is_file()
        self._name = name
        self._file = folder / "__init__.py" if self._is_package else folder.with_suffix(".py")
        self._tree = ast.parse(self._file.read_text(encoding="utf-8"))
        self._defined = _definitions(self._tree.body)
        self._loading: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        """Return a definition of the module, or a module in its folder. Raises: AttributeError if it has none."""
        if name.startswith("__"):
            raise AttributeError(name)
        self._need(name)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"{self._name} of {self._wheel} has no {name}.")

    def cut(self, class_name: str, *methods: str) -> Any:
        """Return a class with only these methods and no base: what they find in `self` is the caller's to give.

        Raises: ValueError if the class has not got all of them.
        """
        node = next(n for n in self._defined[class_name] if isinstance(n, ast.ClassDef))
        kept = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name in methods]
        if len(kept) != len(methods):
            raise ValueError(f"{class_name} of {self._wheel} has not got all of {', '.join(methods)}.")
        for method in kept:
            method.decorator_list = [d for d in method.decorator_list if _is_builtin(d)]
        self._run(ast.ClassDef(name=class_name, bases=[], keywords=[], body=list[ast.stmt](kept), decorator_list=[]))
        return self.__dict__.pop(class_name)

    def _need(self, name: str) -> None:
        """Run what defines a name, after all that it refers to. Names that are no definition are left alone."""
        if name in self.__dict__ or name in self._loading:
            return
        self._loading.add(name)
        for node in self._defined.get(name, ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.__dict__[name] = self._imported(node, name)
            else:
                self._run(node)
            if not isinstance(self.__dict__.get(name), Absent):
                break
        if name not in self.__dict__ and self._is_package and _exists(self._file.parent / name):
            self.__dict__[name] = peer(self._wheel, f"{self._name}.{name}")
        if name not in self.__dict__:
            for node in self._defined.get("*", ()):
                assert isinstance(node, ast.ImportFrom)
                source = self._source(self._origin(node))
                if hasattr(source, name):
                    self.__dict__[name] = getattr(source, name)
                    break
        self._loading.discard(name)

    def _run(self, node: ast.stmt) -> None:
        for name in _names(node):
            self._need(name)
        module = ast.fix_missing_locations(ast.Module(body=[node], type_ignores=[]))
        flags = __future__.annotations.compiler_flag  # so that what is only an annotation is not needed
        exec(compile(module, str(self._file), "exec", flags=flags), self.__dict__)

    def _imported(self, node: ast.Import | ast.ImportFrom, name: str) -> Any:
        alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
        if isinstance(node, ast.Import):
            return self._source(alias.name if alias.asname else alias.name.split(".")[0])
        origin = self._origin(node)
        source = self._source(origin)
        if isinstance(source, Absent):
            return Absent(f"{origin}.{alias.name}")
        try:
            return getattr(source, alias.name)
        except AttributeError:
            return self._source(f"{origin}.{alias.name}")

    def _origin(self, node: ast.ImportFrom) -> str:
        """Return the full name of the module that is imported from."""
        parts = self._name.split(".")
        above = node.level - 1 if self._is_package else node.level
        base = parts[: len(parts) - above] if node.level else []
        return ".".join([*base, *([node.module] if node.module else [])])

    def _source(self, name: str) -> Any:
        if name.split(".")[0] == self._name.split(".")[0]:
            return peer(self._wheel, name)
        try:
            return importlib.import_module(name)
        except ImportError:
            return Absent(name)


@cache
def peer(wheel: str, name: str) -> PeerModule:
    """Return a module of a wheel, `<package>-<version>`, by its full name."""
    module = PeerModule(wheel, name)
    sys.modules[module.__name__] = module  # dataclasses look for the module of a class there
    return module


def _exists(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def _definitions(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Return the statements that define each name of a module, also those under `if` and `try`; "*" for all of one."""
    found: dict[str, list[ast.stmt]] = {}
    for node in _statements(body):
        for name in _defines(node):
            found.setdefault(name, []).append(node)
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            handlers = [line for h in getattr(node, "handlers", ()) for line in h.body]
            yield from _statements([*node.body, *node.orelse, *handlers])
        else:
            yield node


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _names(node: ast.stmt) -> set[str]:
    """Return the names that a statement reads, annotations aside."""
    found: set[str] = set()
    open_nodes: list[ast.AST] = [node]
    while open_nodes:
        now = open_nodes.pop()
        if isinstance(now, ast.Name) and isinstance(now.ctx, ast.Load):
            found.add(now.id)
        skipped = {"annotation", "returns"}
        for field, value in ast.iter_fields(now):
            if field not in skipped:
                open_nodes += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST)]
    return found


def _is_builtin(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in {"staticmethod", "classmethod", "property"}
