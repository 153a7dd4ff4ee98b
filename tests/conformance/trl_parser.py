"""TRL's own parsers, asked on command lines: `python trl_parser.py WHEEL_FOLDER`.

Reads {"program": "sft", "words": [...], "files": {...}} per line and answers with a JSON object per line; its own first
line gives the options of each program. TRL is imported out of its wheel, beside the transformers that is installed
here; what only a run needs (datasets, PEFT) is not there and not asked for. The dataclasses check themselves as they do
before a run.
"""

import argparse
import contextlib
import dataclasses
import importlib
import io
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

PROGRAMS = ("sft", "dpo", "kto", "reward", "grpo", "rloo")


def options_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return every option by its first name: other names, default, type, choices, number of values."""
    return {
        action.option_strings[0]: {
            "names": action.option_strings,
            "default": plain(action.default),
            "type": getattr(action.type, "__name__", ""),
            "choices": None if action.choices is None else [plain(choice) for choice in action.choices],
            "nargs": action.nargs,
        }
        for action in parser._actions
        if action.dest != "help"
    }


def plain(value: Any) -> Any:
    """Return a value as JSON has it; of an enumeration its value."""
    value = getattr(value, "value", value)
    if isinstance(value, dict):
        return json.dumps(value)
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else str(value)


def answer(parser: Any, words: list[str]) -> dict[str, Any]:
    """Return what the program makes of the words: `accepted`, else `text`; `parsed` are the fields of all parts."""
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(io.StringIO()):
        try:
            parts = parser.parse_args_and_config(words, fail_with_unknown_args=True)
        except SystemExit:
            return {"accepted": False, "text": messages.getvalue().strip().rpartition("error: ")[2]}
        except Exception as error:  # whatever its own checks raise is the answer
            return {"accepted": False, "text": f"{type(error).__name__}: {error}"}
    parsed = {field.name: plain(getattr(part, field.name)) for part in parts for field in dataclasses.fields(part)}
    return {"accepted": True, "text": "", "parsed": parsed}


def main() -> None:
    """Answer until the input ends."""
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    warnings.simplefilter("ignore")
    sys.argv = ["trl"]  # beside which the parser would look for a file of arguments
    os.chdir(tempfile.mkdtemp())
    answers = sys.stdout
    parsers = {name: importlib.import_module(f"trl.scripts.{name}").make_parser() for name in PROGRAMS}
    print(json.dumps({name: options_of(parser) for name, parser in parsers.items()}), file=answers, flush=True)
    for line in sys.stdin:
        query = json.loads(line)
        for path, text in query["files"].items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        print(json.dumps(answer(parsers[query["program"]], query["words"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
