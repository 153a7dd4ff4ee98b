"""Model types that transformers has and that are not counted here, each with the reason."""

from collections.abc import Mapping

from jobs.catalog.sentence import Sentence

_ENCODER = Sentence("it is an encoder made to decode, which no trainer here trains.")
_BESIDE = Sentence("it has an encoder and a decoder, which no trainer here trains.")
_OTHER = Sentence("it is no language model of its own.")
_PARTS = Sentence("it is made of parts that the planner does not know.")

_BY_REASON: Mapping[Sentence, tuple[str, ...]] = {
    _ENCODER: (
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "cpmant",
        "data2vec-text",
        "electra",
        "ernie",
        "megatron-bert",
        "modernbert-decoder",
        "reformer",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xlnet",
        "xmod",
    ),
    _BESIDE: (
        "bart",
        "bigbird_pegasus",
        "blenderbot",
        "blenderbot-small",
        "blip",
        "blip-2",
        "blip_text_model",
        "evolla",
        "florence2",
        "git",
        "instructblip",
        "instructblipvideo",
        "kosmos-2",
        "kosmos-2.5",
        "kosmos_2_5_text_model",
        "kosmos_2_text_model",
        "marian",
        "mbart",
        "moshi",
        "musicgen",
        "musicgen_melody",
        "mvp",
        "pegasus",
        "pix2struct",
        "pix2struct_text_model",
        "plbart",
        "pp_formulanet",
        "prophetnet",
        "t5gemma2",
        "trocr",
        "udop",
        "vision-encoder-decoder",
        "whisper",
    ),
    _OTHER: ("gemma4_assistant", "gemma4_unified_assistant", "pi0"),  # drafters, a policy of actions
    _PARTS: (
        "aria",  # a projector of queries that attend
        "axk2",  # norms with gates of low rank
        "blt",  # transformers over bytes and over patches
        "chameleon",  # an image tokenizer
        "cohere_compass",
        "cohere_compass_text",
        "cosmos3_edge",
        "cosmos3_edge_text",
        "dbrx",  # sizes in tables of their own
        "deepseek_ocr2",
        "deepseek_ocr2_text",
        "deepseek_vl_hybrid",  # a second tower
        "diffusion_gemma",
        "diffusion_gemma_text",
        "doge",  # experts that are single neurons
        "ernie4_5_vl_moe",  # experts of text and of images, of two widths
        "ernie4_5_vl_moe_text",
        "glm5_next",
        "glm5_next_text",
        "got_ocr2",  # SAM's encoder
        "hrm_text",  # two stacks of layers that run in turns
        "hunyuan_vl",
        "hunyuan_vl_text",
        "hy_v4",  # hyper-connections
        "idefics",  # cross-attention between the layers
        "idefics2",  # a perceiver
        "inkling_mm_model",  # convolutions beside attention
        "inkling_text",
        "janus",  # an image tokenizer
        "longcat_flash",  # experts that compute nothing, with weights in transformers that no checkpoint has
        "minicpmv4_6",
        "minicpmv4_7",
        "muse_glimmer",
        "muse_glimmer_text",
        "nemotron_h_omni",
        "ovis2",  # a vocabulary of images
        "phi4_multimodal",  # adapters and towers in one table of values
        "pp_chart2table",
        "qwen2_5_omni_thinker",
        "qwen3_omni_moe_thinker",
        "qwen4_exp",  # embeddings of n-grams, hyper-connections
        "qwen4_exp_text",
        "zaya",  # convolutions in attention, routers with layers of their own
    ),
}

REFUSED: Mapping[str, Sentence] = {kind: reason for reason, kinds in _BY_REASON.items() for kind in kinds}
