"""Small tokenizers of two kinds and model folders around them, to hold our text side against Transformers' own."""

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
CHAT_TOKENS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|assistant|>",
    "<|user|>",
    "[INST]",
    "[/INST]",
    "<｜User｜>",
)
_CORPUS = (
    "user assistant system tool tools function name arguments content the answer is what how much and \n\n\n {} [] "
    "You help people. Use the tools. They call it, and they are told what it says. 1 + 1 = 2, 12 - 5 = 7\n" * 4
)
_WORDS = Regex(r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level() -> Tokenizer:
    """Return a tokenizer as Llama 3 and Qwen have: bytes, words cut by a pattern, merged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(tokenizer, pre_tokenizers.ByteLevel.alphabet())


def sentence_pieces() -> Tokenizer:
    """Return a tokenizer as Llama 2 and Mistral have: spaces are letters, and one is put before each text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _trained(tokenizer, [], ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])


def _trained(tokenizer: Tokenizer, alphabet: list[str], more: list[str] | None = None) -> Tokenizer:
    first = [PAD, BOS, EOS, *(more or [])]
    trainer = trainers.BpeTrainer(
        vocab_size=len(first) + len(alphabet) + 160,
        special_tokens=first,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator([_CORPUS], trainer)
    tokenizer.add_special_tokens(list(CHAT_TOKENS))
    begin = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, begin)])
    return tokenizer


def model_folder(folder: Path, tokenizer: Tokenizer, template: str = "") -> Path:
    """Write the files that the text of a model needs; without a template where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder
