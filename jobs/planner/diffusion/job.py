"""What the planner is asked of a diffusion transformer: pictures or clips, how it is trained, and on what.

The states of a training (weights, gradients, optimizer, what sharding gathers) are those of any model cut into blocks,
so that its blocks stand in a ModelShape without a vocabulary: everything outside of the blocks is its last norm there.
"""

from dataclasses import dataclass
from functools import lru_cache

from jobs.catalog.sentence import Sentence
from jobs.planner.can_it_run.plans import TrainingMethod, Way
from jobs.planner.job import Fleet, Job, Layout, Method, Offload, Training
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.diffusion import DiffusionShape
from jobs.planner.shapes.layer_shapes import LayerShape
from jobs.planner.shapes.model_shape import ModelShape

DIFFUSION_METHODS = ("sft", "sft-lora", "grpo", "grpo-lora")
"""The methods of jobs.planner.can_it_run.plans.METHODS that mean something for a diffusion transformer: SFT is flow
matching, GRPO
takes the steps of denoising as the rollout (Flow-GRPO, arXiv 2505.05470; DanceGRPO, arXiv 2505.07818)."""

_RANK = 32
MAX_SIDE, MAX_FRAMES, MAX_TEXT, MAX_STEPS = 16_384, 10_001, 100_000, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is trained on: pixels, frames (1: a picture), tokens of text (0: as its pipeline gives at most).

    Of GRPO `prompts` with `samples_per_prompt` each, `denoising_steps` of the rollout and `trained_steps` of them that
    the update learns from; of SFT `batch_size` samples per optimizer step. `encoders`: parameters of frozen text
    encoders and VAE that stay on every device in bfloat16; 0 where latents and texts were encoded before.
    `recomputes`: every block is checkpointed. `zero`: the stage of sharding, 1 the optimizer, 2 gradients too, 3
    weights too; stage 3 is FSDP, unless the optimizer is on the host, DeepSpeed has all others.
    """

    width: int = 512
    height: int = 512
    frames: int = 1
    text_tokens: int = 0
    prompts: int = 32
    samples_per_prompt: int = 16
    batch_size: int = 64
    denoising_steps: int = 10
    trained_steps: int = 10
    encoders: int = 0
    recomputes: bool = True
    zero: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionJob(Job):
    """A job whose policy is a diffusion transformer: `policy.model` stands in for `shape` where states are estimated,
    its micro-batch counts samples. `has_reference`: a frozen copy scores beside it."""

    shape: DiffusionShape
    picture: Picture
    has_rollout: bool
    has_reference: bool


def stream_tokens(shape: DiffusionShape, picture: Picture) -> tuple[int, int]:
    """Return the tokens of a sample: of its latents, and of its text. Raises: JobInvalid, naming the field."""
    for field, value, most in (
        ("width", picture.width, MAX_SIDE),
        ("height", picture.height, MAX_SIDE),
        ("frames", picture.frames, MAX_FRAMES),
        ("text_tokens", picture.text_tokens or 1, MAX_TEXT),
        ("denoising_steps", picture.denoising_steps, MAX_STEPS),
        ("trained_steps", picture.trained_steps, picture.denoising_steps),
        ("prompts", picture.prompts, 10**6),
        ("samples_per_prompt", picture.samples_per_prompt, 10**6),
        ("batch_size", picture.batch_size, 10**6),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            text = "{value!r} is not allowed for {field}. Use a whole number from 1 to {most:,}."
            raise JobInvalid(field, Sentence(text, value=value, field=field, most=most))
    if picture.zero not in (0, 1, 2, 3):
        raise JobInvalid("zero", Sentence("{value!r} is not allowed for zero. Use 0, 1, 2 or 3.", value=picture.zero))
    for field, value in (("width", picture.width), ("height", picture.height)):
        if value % shape.token_pixels:
            text = "{value} is not allowed for {field}: {name} takes multiples of {each} pixels."
            raise JobInvalid(field, Sentence(text, value=value, field=field, name=shape.name, each=shape.token_pixels))
    if not shape.is_video and picture.frames != 1:
        text = "{value} is not allowed for frames: {name} makes pictures. Use 1."
        raise JobInvalid("frames", Sentence(text, value=picture.frames, name=shape.name))
    if (picture.frames - 1) % shape.frame_stride:
        text = "{value} is not allowed for frames: {name} takes 1 more than a multiple of {each}."
        raise JobInvalid("frames", Sentence(text, value=picture.frames, name=shape.name, each=shape.frame_stride))
    latents = (picture.frames - 1) // shape.frame_stride + 1
    area = (picture.width // shape.token_pixels) * (picture.height // shape.token_pixels)
    return -(-latents // shape.token_frames) * area, picture.text_tokens or shape.text_tokens


@lru_cache(maxsize=64)
def stand_in(shape: DiffusionShape) -> ModelShape:
    """Return the model whose states are those of a diffusion transformer."""
    kinds = [
        (
            LayerShape(
                attention=block.parameters,
                mlp=0,
                experts=0,
                replicated=0,
                window=0,
                is_moe=False,
                largest_matrix=block.largest_matrix,
            ),
            block.count,
        )
        for block in shape.blocks
    ]
    return ModelShape(
        name=shape.name,
        model_type=shape.kind,
        layers=tuple(layer for layer, count in kinds for _ in range(count)),
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_size=shape.hidden // shape.heads,
        query=shape.hidden,
        kv=shape.hidden,
        mlp_width=max(block.width for block in shape.blocks),
        vocab=0,
        is_tied=False,
        final=shape.outside,
        experts=0,
        experts_per_token=0,
        expert_width=0,
        shared_experts=0,
        shared_width=0,
        latent=0,
        has_qk_norm=False,
        attention_kind="gqa",
        mtp_layers=0,
        mtp_parameters=0,
        max_positions=0,
        quantization="",
        quantized_bytes=2.0,
        is_gated=False,
    )


def adapter_elements(shape: DiffusionShape, rank: int) -> int:
    """Return the elements of LoRA beside every matrix of attention: rank * (in + out)."""
    return rank * sum(block.count * block.adapted for block in shape.blocks)


def diffusion_job(
    shape: DiffusionShape,
    recipe: TrainingMethod,
    fleet: Fleet,
    picture: Picture,
    on_host: Way,
    *,
    micro_batch: int = 1,
) -> DiffusionJob:
    """Return the job of a method on all devices of a fleet: FSDP with float32 weights, or DeepSpeed with float32
    masters, as jobs.planner.can_it_run.plans has it. Raises: JobInvalid."""
    latent, text = stream_tokens(shape, picture)
    method: Method = recipe.method
    devices = fleet.num_devices
    samples = picture.prompts * picture.samples_per_prompt if recipe.has_rollouts else picture.batch_size
    each = max(-(-samples // devices), 1)
    micro = min(micro_batch, each)
    trained = picture.trained_steps if recipe.has_rollouts else 1
    stays = on_host == "always" and method == "full"
    is_deepspeed = stays or picture.zero < 3
    moves = on_host != "nothing" and recipe.has_rollouts
    policy = Training(
        model=stand_in(shape),
        layout=Layout(num_devices=devices, shards=picture.zero),
        family="deepspeed" if is_deepspeed else "fsdp",
        method=method,
        lora_rank=_RANK if method != "full" else 0,
        adapter_parameters=adapter_elements(shape, _RANK) if method != "full" else 0,
        weight_bytes=2.0 if is_deepspeed else 4.0,
        gradient_bytes=2.0 if is_deepspeed else 4.0,
        has_master=is_deepspeed,
        compute="bf16" if fleet.accelerator.has_bf16 else "fp16",
        attention="flash2" if "flash2" in fleet.accelerator.attention else "sdpa",
        checkpointing="full" if picture.recomputes else "none",
        micro_batch=micro,
        sequence=latent + text,
        num_micro_batches=-(-each // micro) * trained,
        offload=Offload(
            optimizer=1.0 if stays else 0.0,
            # The policy itself makes the samples: its weights stay, the optimizer may leave.
            optimizer_between_phases=moves,
        ),
    )
    notes = (Sentence("The reward model is not included: its size is unknown."),) if recipe.has_rollouts else ()
    return DiffusionJob(
        algorithm=recipe.algorithm,
        fleet=fleet,
        policy=policy,
        shape=shape,
        picture=picture,
        has_rollout=recipe.has_rollouts,
        has_reference=bool(recipe.frozen),
        notes=notes,
    )
