"""Names of kernels and of frames of Python as people say them: what it does and in which type."""

import re
from functools import lru_cache

from profiling.trace.category import Category

_TYPES = {
    "c10::BFloat16": "bf16", "__nv_bfloat16": "bf16", "c10::Half": "f16", "__half": "f16", "half": "f16",
    "c10::Float8_e4m3fn": "f8", "float": "f32", "double": "f64", "bool": "bool",
}  # fmt: skip
_TYPE = re.compile(r"(?<![\w:])(c10::BFloat16|__nv_bfloat16|c10::Half|__half|half|c10::Float8_e4m3fn|float|double)\b")
_LAMBDA = re.compile(r"\{lambda\(([^)]*)\)#\d+\}>?(?:\(|,|$)")
_FUNCTORS = (
    re.compile(r"CUDAFunctor(?:On\w+)?_(\w+)"),
    re.compile(r"\b(?!gpu_)(\w+)_kernel_(?:cuda|impl)\b"),
    re.compile(r"\b(?!gpu_|_cuda_scatter)(\w+?)_cuda(?:_kernel|_out)?\("),
    re.compile(r"\b(?!AUnary|BUnary|Binary|Unary|CUDA|Opaque)(\w+?)(?:Functor|Ops)\b"),
    re.compile(r"\bfunc_wrapper_t<[^>]*?(\w+)_functor"),
    re.compile(r"\b(Fill|FusedAdamMath|BinaryOp\w*|UnaryOp|Pointwise\w*|TernaryOp\w*)Functor"),
    re.compile(r"\b(Reduce\w+|TensorAssign)\b(?=>|,)"),
)
"""What tells what an element-wise, reducing or list kernel of torch does, the surest first."""
_BODIES = re.compile(
    r"(?:vectorized_|unrolled_|legacy_|_scatter_gather_|index_)?elementwise_kernel\w*|(?:\w*_)?reduce_kernel|"
    r"multi_tensor_apply_kernel|distribution_elementwise_grid_stride_kernel"
)
_OPERATORS = re.compile(r"\bstd::(plus|minus|multiplies|divides)<")
_CUTLASS = re.compile(r"^[^<]*\b(?:Kernel2?|device_kernel)<\s*(?:[\w:]*::)?((?:cutlass|sm\d+|gemm)\w+)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FRAME = re.compile(r"^(?P<path>[^(]*)\((?P<line>\d+)\): (?P<function>.+)$")
_BUILT_IN = re.compile(r"^<built-in (?:method|function) (\S+?)(?: of (?:type object|(\w+) object))?(?: at 0x\w+)?>$")
_KERNELS = frozenset({Category.KERNEL, Category.COMMUNICATION, Category.MEMSET})


@lru_cache(maxsize=50_000)
def readable(name: str, category: int) -> str:
    """Return a short name that keeps what tells events apart: "elementwise add (bf16)"; the name itself if it is short.

    That one is `vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16>, ...>`. A frame becomes
    "forward (linear.py:114)".
    """
    if category == Category.PYTHON:
        return _frame(name)
    return _kernel(name) if category in _KERNELS else name


def _frame(name: str) -> str:
    match = _FRAME.match(name)
    if match:
        return f"{match['function']} ({match['path'].rpartition('/')[2]}:{match['line']})"
    built_in = _BUILT_IN.match(name)
    if built_in:
        return f"{built_in[2]}.{built_in[1]}" if built_in[2] else built_in[1]
    return name


def _kernel(name: str) -> str:
    """Return what a kernel does, by its name as the compiler writes it."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    inner = _CUTLASS.match(plain)
    if inner:
        return inner[1]
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip() or plain
    base = head.rpartition("::")[2]
    rest = plain[len(head) :]
    if not _BODIES.fullmatch(base):
        return base if "<" not in rest else _with_type(base, rest)
    what = next((match[1] for pattern in _FUNCTORS if (match := pattern.search(rest))), "")
    operator = _OPERATORS.search(rest)
    words = [base.replace("_kernel", "").replace("vectorized_", "").replace("unrolled_", "").strip("_")]
    words += [_CAMEL.sub(" ", what).lower().removesuffix(" kernel")] if what else []
    words += [operator[1]] if operator else []
    return _with_type(" ".join(word.replace("_", " ") for word in words), rest)


def _with_type(words: str, rest: str) -> str:
    """Return the words with the type that is worked in: that of the innermost lambda, else the first that is named."""
    of_lambda = _LAMBDA.search(rest)
    last = of_lambda[1].rpartition(",")[2].strip() if of_lambda else ""
    short = _TYPES.get(last)
    if short is None and (match := _TYPE.search(rest)):
        short = _TYPES[match[1]]
    return f"{words} ({short})" if short else words
