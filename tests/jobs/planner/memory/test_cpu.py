"""Training on CPU, computed by hand: what is there at the fullest moment of a step."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Layout, Training
from jobs.planner.memory.cpu import host_cpu
from jobs.planner.memory.phases import resident_memory, scoring_memory, update_memory
from jobs.planner.result import PeakMemory
from jobs.planner.shapes.model_shape import read_shape

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1408,
    "vocab_size": 8192,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
SHAPE = read_shape(CONFIG, name="small")
PARAMETERS = 31_990_272
CPU = host_cpu(16 << 30)
K = shipped_constants()
GROWTH = K.memory.host_growth_bytes + K.memory.host_training_bytes
ZERO_2 = Training(
    model=SHAPE,
    layout=Layout(num_devices=2, shards=2),
    family="deepspeed",
    weight_bytes=4.0,
    gradient_bytes=4.0,
    has_fused_optimizer=False,
    compute="fp32",
    attention="sdpa",
    checkpointing="full",
    micro_batch=1,
    sequence=1,
    num_micro_batches=2,
)


def test_zero_2_is_fullest_when_gradients_are_reduced() -> None:
    """A single token: no activation counts. Whole weights and bucket; of masters, moments, the sum of the first
    micro-batch, what is sent and what is kept, half."""
    memory = update_memory(ZERO_2, CPU, K)

    expected = PARAMETERS * 4 * (1 + 3 / 2 + 1 + 3 / 2) + GROWTH
    assert memory.total == pytest.approx(expected, rel=0.001)
    assert memory.terms["weights"] == PARAMETERS * 4
    assert memory.terms["overhead"] == GROWTH  # no context, no allocator that keeps blocks


def test_without_zero_there_is_no_master_and_gradients_are_there_twice_when_they_are_reduced() -> None:
    training = replace(ZERO_2, layout=Layout(num_devices=2), has_master=False)

    assert update_memory(training, CPU, K).total == pytest.approx(PARAMETERS * 4 * (1 + 2 + 2) + GROWTH, rel=0.001)


def test_logits_and_entropy_are_five_copies_in_float32() -> None:
    tokens = 8192
    long, short = (
        update_memory(replace(ZERO_2, micro_batch=1, sequence=length), CPU, K) for length in (tokens, tokens // 2)
    )

    assert long.terms["logits"] == tokens * 8192 * 20
    assert short.terms["logits"] == tokens * 8192 * 10


@pytest.mark.parametrize("shards", [0, 1, 2, 3])
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_more_ranks_and_checkpointing_never_take_more(shards: int, compute: str) -> None:
    element = 4.0 if compute == "fp32" else 2.0
    base = replace(
        ZERO_2,
        layout=Layout(num_devices=2, shards=shards),
        compute=compute,  # type: ignore[arg-type]
        weight_bytes=element,
        gradient_bytes=element,
        sequence=512,
    )
    wider = replace(base, layout=Layout(num_devices=4, shards=shards))
    kept = replace(base, checkpointing="none")

    assert update_memory(wider, CPU, K).total <= update_memory(base, CPU, K).total
    assert update_memory(base, CPU, K).total <= update_memory(kept, CPU, K).total
    assert resident_memory(base, CPU, K).total <= update_memory(base, CPU, K).total


@pytest.mark.parametrize(("element", "logit"), [(4.0, 12), (2.0, 14)])
def test_log_probabilities_take_logits_and_what_their_entropy_is_made_of(element: float, logit: int) -> None:
    def score(weight_bytes: float) -> PeakMemory:
        return scoring_memory(
            SHAPE,
            Layout(),
            weight_bytes=weight_bytes,
            element_bytes=element,
            tokens=512,
            has_head=True,
            head="unfused",
            accelerator=CPU,
            constants=K,
        )

    memory, of_the_policy = score(element), score(0.0)
    assert memory.terms["logits"] == of_the_policy.terms["logits"] == 512 * 8192 * logit
    assert memory.terms["activations"] == of_the_policy.terms["activations"] > 0
    assert memory.terms["weights"] == PARAMETERS * element


def test_gradients_stay_between_steps_in_zero_3_alone() -> None:
    def gradients(shards: int) -> int:
        training = replace(ZERO_2, layout=Layout(num_devices=2, shards=shards))
        return resident_memory(training, CPU, K).terms.get("gradients", 0)

    assert [gradients(shards) for shards in range(3)] == [0, 0, 0]
    assert gradients(3) == PARAMETERS * 4 * (1 / 2 + 1)  # the rank's own, and the bucket
