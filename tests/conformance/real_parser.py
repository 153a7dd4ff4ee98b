"""OpenRLHF's own parser, run on command lines: `python real_parser.py WHEEL_FOLDER train_sft DEEPSPEED_FOLDER`.

Standard library only. Reads {"words": [...], "processes": n} per line and answers with a JSON object per line; its own
first line tells the options. The real file of the wheel is executed as `__main__`, so its own checks behind the parser
run too; whatever is not in the standard library is a stub, but for OpenRLHF's own small modules without imports. Before
the main guard one statement is inserted, which keeps `train` from being run; for RL the original `train` runs against
the stubs, so that its checks of the placement run as well. What is accepted so far goes through `real_pieces`.
"""

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from real_pieces import Anything, check

REAL = ("openrlhf.utils.config",)  # of the wheel; it imports the standard library alone
KEEP = "train = keep(train)"


class PlacementResult:
    """What `train` asks of the cluster: the GPUs of every group of bundles, every role and every engine of its own."""

    def __init__(self) -> None:
        self.gpus = 0

    def bundles(self, bundles: list[dict[str, int]], **_: Any) -> Anything:
        """Reserve a group of bundles, which several roles share."""
        self.gpus += sum(bundle["GPU"] for bundle in bundles)
        return Anything()

    def role(self, num_nodes: int, num_gpus_per_node: int, *_: Any, pg: Any = None, **__: Any) -> Anything:
        """Place a role: among bundles, or one GPU per rank."""
        self.gpus += 0 if pg else num_nodes * num_gpus_per_node
        return Anything()

    def engines(self, num_engines: int, tensor_parallel_size: int, *given: Any, **_: Any) -> Anything:
        """Place the engines: among bundles, or with GPUs of their own."""
        shared = given[6]  # pretrain, seed, full_determinism, prefix caching, eager, length, then the bundles
        self.gpus += 0 if shared else num_engines * tensor_parallel_size
        return Anything()


placed = PlacementResult()
PLACED = {
    "ray.util.placement_group": {"placement_group": placed.bundles},
    "openrlhf.trainer.ray.launcher": {"RayActorGroup": placed.role},
    "openrlhf.trainer.ray": {"create_vllm_engines": placed.engines},
}


class _Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every import of what is not in the standard library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the real file where we want it, a stub for the rest of the world."""
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        file = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        if name in REAL and file.exists():
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Return a module on which everything is there and callable."""
        module = Anything()
        module.__path__ = []
        for name, record in PLACED.get(spec.name, {}).items():
            setattr(module, name, record)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the stub is ready."""


class RealParser:
    """One command line program of one version."""

    def __init__(self, folder: Path, program: str, deepspeed: Path | None) -> None:
        self.folder, self.deepspeed = folder, deepspeed
        file = folder / "openrlhf" / "cli" / f"{program}.py"
        tree = ast.parse(file.read_text(encoding="utf-8"))
        guard = next(n for n, node in enumerate(tree.body) if isinstance(node, ast.If) and "__main__" in ast.dump(node))
        tree.body.insert(guard, ast.parse(KEEP).body[0])
        self.code = compile(ast.fix_missing_locations(tree), str(file), "exec")
        self.program = program
        self.parsers: list[argparse.ArgumentParser] = []
        self.parsed: dict[str, Any] = {}
        self.processes = 1

    def run(self, words: list[str], processes: int = 1) -> dict[str, Any]:
        """Return what the program makes of the words.

        `accepted`; else `kind` (the exception, or "usage") and `text`. `parsed` are the values by dest as argparse left
        them; `inexact` are options that were only understood as the beginning of another; `gpus` is what `train` asks
        the cluster for in RL.
        """
        self.parsers.clear()
        self.parsed, self.processes, placed.gpus = {}, processes, 0
        said = io.StringIO()
        answer: dict[str, Any] = {"accepted": True, "kind": "", "text": ""}
        sys.argv = [self.program, *words]
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                exec(self.code, {"__name__": "__main__", "keep": self._keep})
            except SystemExit:
                answer |= {"accepted": False, "kind": "usage", "text": said.getvalue().strip().rpartition("error: ")[2]}
            except Exception as error:  # whatever its own checks raise is the answer
                answer |= {"accepted": False, "kind": type(error).__name__, "text": str(error)}
        options = {option for parser in self.parsers for option in parser._option_string_actions}
        answer["inexact"] = [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
        answer["parsed"] = self.parsed
        answer["gpus"] = placed.gpus
        return answer

    def options(self) -> dict[str, Any]:
        """Return every option: its dest, default, type, choices and number of values."""
        self.run(["--help"])
        found = {}
        for action in self.parsers[-1]._actions:
            if action.dest == "help":
                continue
            for name in action.option_strings:
                found[name] = {
                    "dest": action.dest,
                    "default": action.default,
                    "type": getattr(action.type, "__name__", None),
                    "choices": None if action.choices is None else list(action.choices),
                    "nargs": 0 if action.nargs == 0 else action.nargs,
                    "sets": getattr(action, "const", None),
                }
        return found

    def _keep(self, train: Any) -> Any:
        def kept(args: Any) -> None:
            is_rl = self.program == "train_ppo_ray"
            if is_rl:
                train(args)
            check(self.folder, args, is_rl=is_rl, processes=self.processes, deepspeed=self.deepspeed)

        return kept


def main() -> None:
    """Answer until the input ends."""
    folder, program = Path(sys.argv[1]), sys.argv[2]
    sys.meta_path.insert(0, _Stub(folder))
    real = RealParser(folder, program, Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    init = argparse.ArgumentParser.__init__

    def noted(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        init(parser, *given, **named)
        real.parsers.append(parser)

    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> Any:
        found = parse(parser, *given, **named)
        real.parsed = dict(vars(found))
        return found

    argparse.ArgumentParser.__init__ = noted  # type: ignore[method-assign]  # the program makes its own
    argparse.ArgumentParser.parse_args = parsed  # type: ignore[method-assign,assignment]
    answers = sys.stdout
    print(json.dumps(real.options()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(real.run(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
