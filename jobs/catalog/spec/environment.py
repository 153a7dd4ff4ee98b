"""The environment variables of a run: which a spec takes, and why others are refused.

Variables that are no secret stand in the spec with their values, secrets with their names alone: no error that is
raised here holds a value.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from jobs.catalog.sentence import Sentence
from jobs.catalog.value import is_storable
from profiling.redaction import MIN_BYTES, hide, secrets_of

MAX_VARIABLES = 100
MAX_NAME_CHARS = 128
MAX_VALUE_CHARS = 8192  # of a secret too: a private key has about 3,000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = re.compile(r"(?:export\s+)?([^\s=]+)=(.*)")


class _Refused(NamedTuple):
    names: re.Pattern[str]
    why: Sentence


_REFUSED = (
    _Refused(
        re.compile(r"LD_(PRELOAD|AUDIT|DEBUG.*|PROFILE.*|BIND.*)|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH"),
        Sentence("the loader would take it into every process of the run, before any code of Pitwall's"),
    ),
    _Refused(
        re.compile(r"PYTHON(?!HASHSEED$|FAULTHANDLER$|UNBUFFERED$|MALLOC$|WARNINGS$).*|VIRTUAL_ENV|CONDA_PREFIX"),
        Sentence("it changes which code Python runs; say with PITWALL_TRAINERS where a trainer is installed"),
    ),
    _Refused(re.compile(r"RAY_.*"), Sentence("Ray reads it when its nodes start; set it there")),
    _Refused(re.compile(r"PITWALL_.*"), Sentence("it is Pitwall's own")),
    _Refused(
        re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|PWD|IFS|ENV|BASH_ENV|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS4"),
        Sentence("programs of the run are found and started by it"),
    ),
    _Refused(
        re.compile(r"(CUDA|NVIDIA|HIP|ROCR|ASCEND_RT|NPU)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|GPU_DEVICE_ORDINAL"),
        Sentence("Ray gives each worker its devices by it"),
    ),
    _Refused(
        re.compile(
            r"(LOCAL_|NODE_|GROUP_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|TORCHELASTIC_.*"
        ),
        Sentence("the trainer sets it anew in each rank"),
    ),
    _Refused(
        re.compile(r"(CUDA|NVTX)_INJECTION(32|64)_PATH|QUADD_.*|NSYS_.*|KINETO_.*"),
        Sentence("recorders and readers of logs set it themselves"),
    ),
)
_RUNS_CODE = re.compile(
    r"LD_LIBRARY_PATH|.*_PLUGINS?|.*_PRELOAD|.*_COMMAND|.*_(CONF|CONFIG|DEBUG|LOG)_FILE|(HF_)?MODULES_CACHE|HF_ENDPOINT"
    r"|CC|CXX|NVCC|CUDA_(HOME|PATH|ROOT)|TORCH_EXTENSIONS_DIR|(TRITON|TORCHINDUCTOR)_CACHE_DIR|VLLM_CACHE_ROOT"
    r"|TRITON_(PTXAS|CUOBJDUMP|NVDISASM)_PATH|EDITOR|PAGER|GIT_.*"
)


def check_variables(raw: object) -> dict[str, str]:
    """Return variables by name, sorted, as plain texts; numbers and booleans are written as people write them.

    Raises: PydanticCustomError, which names the variable and never its value.
    """
    if not isinstance(raw, Mapping):
        raise PydanticCustomError("not_variables_of_run", "no variables")
    _check_number(len(raw))
    checked = {name: _value(name, value) for name, value in raw.items()}
    return dict(sorted(checked.items()))


def check_secret_names(raw: object) -> tuple[str, ...]:
    """Return the names of secrets, each once, sorted. Raises: PydanticCustomError, which holds no value."""
    if not isinstance(raw, list | tuple) or not all(isinstance(name, str) for name in raw):
        raise PydanticCustomError("not_secret_names", "no names")
    _check_number(len(raw))
    for name in raw:
        _check_name(name)
    return tuple(sorted(set(raw)))


def why_no_name(name: object) -> Sentence | None:
    """Return why a run takes no variable of this name; None for one that it takes."""
    if not (isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name)):
        return Sentence(
            "a name has up to {most} letters, digits and _, and does not begin with a digit", most=MAX_NAME_CHARS
        )
    if hide(name) != name:
        return Sentence("that looks like the secret itself; its name is asked for")
    return next((refused.why for refused in _REFUSED if refused.names.fullmatch(name.upper())), None)


def why_no_secret(value: object) -> Sentence | None:
    """Return why a text cannot be the value of a secret; None for one that can."""
    if not isinstance(value, str) or not is_storable(value):
        return Sentence("its value is no text that can be stored")
    if len(value.strip().encode()) < MIN_BYTES:
        return Sentence("a value of less than {least} bytes cannot be recognized in logs", least=MIN_BYTES)
    if len(value) > MAX_VALUE_CHARS:
        return Sentence("its value is longer than {most} characters", most=MAX_VALUE_CHARS)
    return None


def why_no_variable(name: object, value: object) -> Sentence | None:
    """Return why this is no variable that is shown with its value; None for one that is."""
    if (why := why_no_name(name)) is not None:
        return why
    if not isinstance(value, str) or not is_storable(value) or "\n" in value or "\r" in value:
        return Sentence("its value is no text on one line")
    if len(value) > MAX_VALUE_CHARS:
        return Sentence("its value is longer than {most} characters", most=MAX_VALUE_CHARS)
    if secrets_of({str(name): value}):
        return Sentence("it holds a secret, and would be shown; give it as a secret")
    return None


def shown_name(name: object) -> str:
    """Return a name as an error may show it: as it is if it is one, else in quotes, and never what looks secret."""
    shown = name if isinstance(name, str) and _NAME.fullmatch(name) else repr(name)
    return hide(str(shown))[:MAX_NAME_CHARS]


def runs_code(name: str) -> bool:
    """Return True for a variable that names code, libraries or files to write for a trainer or what it loads."""
    return _RUNS_CODE.fullmatch(name.upper()) is not None


def variables_text(variables: Mapping[str, str]) -> str:
    """Return variables as people write them: NAME=value, one a line."""
    return "\n".join(f"{name}={value}" for name, value in variables.items())


def read_variables(text: str) -> dict[str, str] | str:
    """Return what lines of NAME=value say, without `export` and outer quotes; the text itself if it is none."""
    variables = {}
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if (matched := _LINE.fullmatch(line)) is None:
            return text
        value = matched[2].strip()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        variables[matched[1]] = value[1:-1] if is_quoted else value
    return variables


def names_text(names: Iterable[str]) -> str:
    """Return names as people write them."""
    return " ".join(names)


def read_names(text: str) -> list[str]:
    """Return names that are divided by white space or commas."""
    return text.replace(",", " ").split()


def _check_number(number: int) -> None:
    if number > MAX_VARIABLES:
        raise PydanticCustomError("variable_refused", "too many", {"name": str(number), "why": _TOO_MANY})


def _check_name(name: object) -> None:
    if (why := why_no_name(name)) is not None:
        raise _refusal(name, why)


def _value(name: object, value: object) -> str:
    if isinstance(value, bool):
        value = "1" if value else "0"
    elif isinstance(value, int | float):
        value = f"{value:.15g}" if isinstance(value, float) else str(value)
    if (why := why_no_variable(name, value)) is not None:
        raise _refusal(name, why)
    return str(value)


def _refusal(name: object, why: Sentence) -> PydanticCustomError:
    return PydanticCustomError("variable_refused", "refused", {"name": shown_name(name), "why": why})


_TOO_MANY = Sentence("a run takes at most {most} variables and as many secrets", most=MAX_VARIABLES)
