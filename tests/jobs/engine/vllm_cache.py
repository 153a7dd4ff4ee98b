"""Ask vLLM how it groups layers and how many blocks its cache has: `python -m tests.jobs.engine.vllm_cache`.

Reads [model folder, bytes of the cache, [window of each layer, or null] of one model, ...] as JSON and prints, as its
last line, the groups of each model, then the block size, blocks and tokens of an engine's cache.
"""

import json
import os
import sys

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

import torch
import vllm
from vllm.v1.core.kv_cache_utils import _get_kv_cache_groups_uniform_page_size as group
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

BLOCK_TOKENS = 32


def groups_of(windows: list[int | None]) -> list[list[int]]:
    """Return the layers of each group, by vLLM's own function."""
    sizes = {"block_size": 16, "num_kv_heads": 4, "head_size": 128, "dtype": torch.bfloat16}
    specs = {
        str(layer): SlidingWindowSpec(**sizes, sliding_window=window) if window else FullAttentionSpec(**sizes)
        for layer, window in enumerate(windows)
    }
    return [[int(name) for name in each.layer_names] for each in group(specs)]


def main() -> None:
    """Answer what is asked on standard input."""
    folder, cache_bytes, *models = json.load(sys.stdin)
    groups = [groups_of(windows) for windows in models]
    llm = vllm.LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=256,
        max_num_seqs=8,
        enforce_eager=True,
        block_size=BLOCK_TOKENS,
        kv_cache_memory_bytes=cache_bytes,
    )
    config = llm.llm_engine.vllm_config.cache_config
    print(json.dumps([groups, [config.block_size, config.num_gpu_blocks, config.kv_cache_size_tokens]]))


if __name__ == "__main__":
    main()
