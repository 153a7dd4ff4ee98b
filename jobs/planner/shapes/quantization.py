"""What a config says of how its checkpoint holds weights: bytes per element, scales included."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Literal

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues
from jobs.planner.shapes.mixtures import EXPERTS

_DTYPES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "half": 2.0,
    "float32": 4.0,
    "float": 4.0,
    "float64": 8.0,
    "float8_e4m3fn": 1.0,
    "auto": 2.0,
}
_SCALE_BYTES = 2  # of a group's scale in integer formats
_MXFP4 = 4.25 / 8  # 4 bits, and 8 bits of scale for 32 elements
_METHODS = "auto-round, awq, bitsandbytes, compressed-tensors, fbgemm_fp8, fp8, gptq, hqq, modelopt, mxfp4, quark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """`quantized_bytes` per element of the matrices it reaches, `element_bytes` of the rest; `name` is "" for none.
    `expert_bytes` of routed experts and `mlp_bytes` of dense MLPs where they have a type of their own, else 0."""

    name: str
    quantized_bytes: float
    element_bytes: float
    reaches: Literal["layers", "experts"] = "layers"
    expert_bytes: float = 0.0
    mlp_bytes: float = 0.0

    def dense_bytes(self, attention: int, mlp: int) -> float:
        """Return the bytes per element of attention and MLPs of so many elements together."""
        if not self.mlp_bytes or not attention + mlp:
            return self.quantized_bytes
        return (attention * self.quantized_bytes + mlp * self.mlp_bytes) / (attention + mlp)


def read_quantization(outer: ConfigValues, text: ConfigValues) -> Quantization:
    """Return how the weights of a checkpoint are held. Raises: ShapeUnreadable."""
    where = text if text.has("dtype") or text.has("torch_dtype") else outer
    key = where.first("dtype", "torch_dtype")
    dtype = where.text(key, "bfloat16").removeprefix("torch.")
    if dtype not in _DTYPES:
        raise where.refusal(
            key, Sentence("is {dtype}. Known are {known}.", dtype=where.shown(dtype), known=", ".join(_DTYPES))
        )
    plain = _DTYPES[dtype]
    table = outer.table("quantization_config") or text.table("quantization_config")
    if table is None:
        return Quantization(name="", quantized_bytes=plain, element_bytes=plain)
    method = table.text("quant_method", "modelopt" if table.has("quant_algo") else None).lower()
    if method.startswith("modelopt") and table.value("quant_algo") == "MIXED_PRECISION":
        return _mixed(table, plain)
    quantized = _bytes(table, "modelopt" if method.startswith("modelopt") else method)
    rest = 2.0 if plain < 2 else plain
    if method == "mxfp4":  # gpt-oss, the one family that has it, keeps attention and router as they were
        return Quantization(name=method, quantized_bytes=quantized, element_bytes=rest, reaches="experts")
    return Quantization(
        name=method,
        quantized_bytes=quantized,
        element_bytes=rest,
        reaches="experts" if _leaves_attention(table, text) else "layers",
        expert_bytes=_expert_bytes(table, text) if method == "fp8" else 0.0,
    )


def _expert_bytes(table: ConfigValues, text: ConfigValues) -> float:
    """Return the bytes per element of experts of 4 bits in a checkpoint of 8 (DeepSeek-V4): as `quantization_config`
    says, where modelopt has made them anew, else as the model does; 0 where they are like the rest."""
    if table.has("moe_quant_algo"):
        return _algorithm(table, table.text("moe_quant_algo"))
    return _MXFP4 if text.value("expert_dtype") == "fp4" else 0.0


def _mixed(table: ConfigValues, plain: float) -> Quantization:
    """Return how a checkpoint is held of which modelopt lists every quantized module with its own type: attention,
    MLPs and routed experts, each by what the first module of its kind has."""
    listed = table.table("quantized_layers")
    if listed is None:
        raise table.refusal("quantized_layers", Sentence("is missing. It must be a table of modules."))
    kinds: dict[str, float] = {}
    for name in listed.values:
        is_routed = ".experts" in name
        kind = "expert" if is_routed else "mlp" if ".mlp." in name or "experts" in name else "attention"
        if kind not in kinds and ("attn" in name or kind != "attention"):
            module = listed.table(name)
            kinds[kind] = _algorithm(module, module.text("quant_algo")) if module is not None else plain
    return Quantization(
        name="modelopt",
        quantized_bytes=kinds.get("attention", plain),
        element_bytes=2.0 if plain < 2 else plain,
        expert_bytes=kinds.get("expert", plain),
        mlp_bytes=kinds.get("mlp", plain),
    )


def _algorithm(table: ConfigValues, algorithm: str) -> float:
    name = algorithm.upper()
    if name.startswith("FP8"):
        return 1.0
    if name.endswith("NVFP4"):
        return 4.5 / 8  # 4 bits, and 8 bits of scale for 16 elements
    if name in ("MXFP8", "MXFP4"):
        return (int(name[-1]) + 8 / 32) / 8
    raise table.refusal(
        "quant_algo", Sentence("is {algorithm}. Known are FP8, MXFP4, MXFP8, NVFP4.", algorithm=table.shown(algorithm))
    )


# What a list of modules that stay as they were may call them: what stands before a layer, and its parts.
_BEFORE = ("model.", "model.language_model.", "language_model.model.", "language_model.", "")
_ATTENTION = ("self_attn.o_proj", "self_attn.q_proj", "self_attn.q_b_proj")
_EXPERTS = ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2", "mlp.experts", "block_sparse_moe.experts")


def _leaves_attention(table: ConfigValues, text: ConfigValues) -> bool:
    """Return True if a list of modules that stay as they were names attention and not the routed experts. Raises:
    ShapeUnreadable."""
    patterns: list[str] = []
    for key in ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "exclude"):
        patterns += table.items(key, str) or ()
    if not patterns or not any(text.has(key) for key in EXPERTS):
        return False
    number = text.optional_count("num_hidden_layers", limit=LAYER_LIMIT) or 1
    whole = [each for pattern in patterns[:_MOST_PATTERNS] for each in _plain(pattern)]
    layers = [f"{before}layers.{index}." for before, index in product(_BEFORE, {number // 2, number - 1})]
    return _is_among(whole, layers, _ATTENTION) and not _is_among(whole, layers, _EXPERTS)


_MOST_PATTERNS = 4096


def _is_among(patterns: Iterable[str], layers: Iterable[str], parts: Iterable[str]) -> bool:
    names = [layer + part for layer, part in product(layers, parts)]
    return any(
        fnmatchcase(name, pattern) if "*" in pattern else name == pattern or name.startswith(f"{pattern}.")
        for pattern in patterns
        for name in names
    )


def _plain(pattern: str) -> tuple[str, ...]:
    """Return a pattern as shells have them; of a regular expression what such a pattern can say, else nothing."""
    if not pattern.startswith("re:"):
        return (pattern,)
    simple = pattern[3:].strip("^$").replace(r"\.", "\0").replace(".*", "*").replace("\0", ".")
    return (simple + "*",) if not set(simple) & set("\\[](){}|+?") else ()


def _bytes(table: ConfigValues, method: str) -> float:
    if method in ("fp8", "fbgemm_fp8"):
        block = table.items("weight_block_size", int)
        if block is None:
            return 1.0
        if len(block) != 2 or min(block) < 1:
            raise table.refusal(
                "weight_block_size",
                Sentence("is {block}. It must be two positive numbers.", block=table.shown(list(block))),
            )
        return 1.0 + 4 / (block[0] * block[1])
    if method == "mxfp4":
        return _MXFP4
    if method in ("gptq", "awq"):
        bits = table.count("bits", "w_bit", limit=8)
        return _grouped(bits, table.optional_count("group_size", "q_group_size", low=-1, limit=1 << 20) or 128)
    if method == "auto-round":
        bits, size = table.count("bits", limit=16), table.optional_count("group_size", low=-1, limit=1 << 20) or 128
        return _scaled(bits, size) if table.text("data_type", "int").startswith(_FLOATS) else _grouped(bits, size)
    if method == "hqq":
        return _hqq(table)
    if method == "quark":
        return _quark(table)
    if method == "bitsandbytes":
        if table.flag("load_in_8bit", False):
            return 1.0
        if table.flag("load_in_4bit", False):
            # 32 bits of scale for 64 elements, or 8 bits of it and 32 more for each 256 of those.
            scale = 8 / 64 + 32 / (64 * 256) if table.flag("bnb_4bit_use_double_quant", False) else 32 / 64
            return (4 + scale) / 8
        raise table.refusal("load_in_4bit", Sentence("is missing. One of load_in_4bit and load_in_8bit must be true."))
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(table)
    if method == "modelopt":
        return _algorithm(table, table.text("quant_algo"))
    raise table.refusal(
        "quant_method", Sentence("is {method}. Known are {methods}.", method=table.shown(method), methods=_METHODS)
    )


def _compressed(table: ConfigValues) -> float:
    groups = table.table("config_groups")
    if groups is None:
        raise table.refusal("config_groups", Sentence("is missing. It must be a table of groups of layers."))
    for group in groups.tables():
        weights = group.table("weights")
        if weights is not None:
            bits = weights.count("num_bits", limit=16)
            size = weights.optional_count("group_size", low=-1, limit=1 << 20)
            if not size or size < 1:
                return bits / 8
            if weights.text("type", "int") == "float":
                return _scaled(bits, size)
            return _grouped(bits, size, has_zeros=not weights.flag("symmetric", True))
    raise table.refusal("config_groups", Sentence("has no group that says how weights are held."))


def _hqq(table: ConfigValues) -> float:
    """Return the bytes of HQQ's elements: a scale and a zero point of 16 bits a group. Raises: ShapeUnreadable."""
    inner = table.table("quant_config")
    where = (inner.table("weight_quant_params") if inner is not None else None) or inner or table
    bits, size = where.count("nbits", "bits", limit=8), where.optional_count("group_size", limit=1 << 20)
    return (bits + (32 / size if size else 0)) / 8


_QUARK = {"fp4": 4, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8, "fp8_e4m3": 8, "fp6_e2m3": 6, "fp6_e3m2": 6}


def _quark(table: ConfigValues) -> float:
    """Return the bytes of AMD Quark's elements, as its global_quant_config has them. Raises: ShapeUnreadable."""
    whole = table.table("global_quant_config")
    weights = whole.table("weight") if whole is not None else None
    if weights is None:
        raise table.refusal("global_quant_config", Sentence("has no group that says how weights are held."))
    dtype = weights.text("dtype")
    if dtype not in _QUARK:
        text = Sentence("is {dtype}. Known are {known}.", dtype=weights.shown(dtype), known=", ".join(_QUARK))
        raise weights.refusal("dtype", text)
    size = weights.optional_count("group_size", low=-1, limit=1 << 20) or -1
    if size < 1:
        return _QUARK[dtype] / 8
    return _scaled(_QUARK[dtype], size) if dtype.startswith("fp") else _grouped(_QUARK[dtype], size)


_FLOATS = ("mx", "nv")  # number types of auto-round that are floats with scales of 8 bits: mx_fp, nv_fp


def _scaled(bits: int, size: int) -> float:
    """Return bytes per element of floats with a scale of 8 bits a group, and no zero point (NVFP4, MXFP4)."""
    return (bits + 8 / size) / 8 if size > 0 else bits / 8


def _grouped(bits: int, size: int, *, has_zeros: bool = True) -> float:
    """Return bytes per element with a scale per group, and a zero point where there is one; a group of -1 is a whole
    column. GPTQ's files have zero points even where they are all the same."""
    return bits / 8 if size < 1 else (bits + (8 * _SCALE_BYTES + bits * has_zeros) / size) / 8
