"""The headline of *Can it run?*: the practical minimum, and what else is possible, with what each of it takes."""

import re

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.model import find_model
from jobs.planner.can_it_run.language_models import can_it_run
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.can_it_run.verdict import ASSUMED_HOST_BYTES, MOST_WASTE, FitVerdict
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import read_shape

ASKED = {
    ("qwen3-30b-a3b", "grpo", "h200-sxm", None),
    ("qwen3-30b-a3b", "ppo", "h200-sxm", None),
    ("qwen3-30b-a3b", "grpo", "h100-sxm", None),
    ("qwen3-32b", "grpo", "h200-sxm", None),
    ("llama-3.1-70b", "grpo", "h200-sxm", None),
    ("qwen3-235b-a22b", "grpo", "h200-sxm", None),
    ("qwen2.5-72b", "grpo", "h100-sxm", 8),
    ("qwen2.5-72b", "grpo", "h100-sxm", None),
}
"""Questions whose headline was once the fewest devices at all: some with a step of 15 to 38 hours, most with the host
memory of a whole node for a few of its devices."""


@pytest.mark.parametrize(("model", "method", "accelerator", "devices"), sorted(ASKED, key=str))
def test_the_headline_is_the_practical_minimum(model: str, method: str, accelerator: str, devices: int | None) -> None:
    found = can_it_run(shape_of(model), find_accelerator(accelerator), method, devices)

    practical, recommended = found.practical, found.recommended
    assert found.answer == "yes"
    assert practical is not None
    assert practical.estimate is not None
    assert practical.job is not None
    assert recommended is not None
    assert recommended.estimate is not None
    step, roomy = practical.estimate.time.step.middle, recommended.estimate.time.step.middle
    assert step <= 3600
    assert step * (practical.num_devices or 0) <= MOST_WASTE * roomy * (recommended.num_devices or 0)
    used = min(practical.job.fleet.devices_per_node, practical.num_devices or 0)
    assert practical.estimate.host_bytes <= used * ASSUMED_HOST_BYTES
    assert f"{practical.num_devices} devices" in found.summary
    for word in ("iB of host RAM a node", "of disk for a checkpoint", practical.label):
        assert word in found.summary
    assert any("250 GB of host RAM for each of their devices" in line for line in found.more)
    assert (practical.num_devices or 0) < (recommended.num_devices or 0) or step >= roomy


def _mixture(devices: int | None = None, **more: float) -> FitVerdict:
    return can_it_run(shape_of("qwen3-30b-a3b"), find_accelerator("h200-sxm"), "grpo", devices, **more)  # type: ignore[arg-type]


def test_what_takes_hours_a_step_stands_under_the_headline_and_is_no_yes() -> None:
    any_number, one = _mixture(), _mixture(1)

    possible = any_number.possible
    assert possible is not None
    assert possible.estimate is not None
    assert (possible.num_devices, possible.on_host) == (1, "always")
    assert possible.estimate.time.step.middle > 4 * 3600
    (line,) = [line for line in any_number.more if line.startswith("Possible with offload")]
    assert "1 device on" in line
    assert " h a step" in line
    assert one.answer == "possible"
    assert "a step takes long" in one.summary
    assert "It takes 4 devices" in one.summary


def test_who_has_time_and_host_memory_is_answered_by_them() -> None:
    """A limit that somebody sets is the only one: with days, and the whole node's memory, one device is enough."""
    patient = _mixture(None, within_hours=48, host_bytes=2 * 10**12)
    hasty = _mixture(None, within_hours=0.03)

    assert patient.practical is not None
    assert (patient.answer, patient.practical.num_devices) == ("yes", 1)
    assert not any("Assumed" in line for line in patient.more)
    assert hasty.practical is not None
    assert hasty.practical.num_devices == 8  # four take minutes


def test_hours_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="0 is not allowed for the hours of a step"):
        _mixture(None, within_hours=0)


def test_fewer_devices_than_their_share_of_host_memory_are_no_yes() -> None:
    """32B on one H200 has a step of minutes, with the host memory of three devices."""
    found = can_it_run(shape_of("qwen3-32b"), find_accelerator("h200-sxm"), "grpo", 1)
    told = can_it_run(shape_of("qwen3-32b"), find_accelerator("h200-sxm"), "grpo", 1, host_bytes=2 * 10**12)

    assert found.answer == "possible"
    assert "host RAM of more devices" in found.summary
    assert told.answer == "yes"


def test_devices_that_are_wasted_are_said_to_be_and_not_that_a_step_takes_long() -> None:
    found = can_it_run(shape_of("qwen2.5-0.5b"), find_accelerator("h100-sxm"), "sft", 10_000)

    assert found.answer == "possible"
    assert re.search(r"a step takes [\d,]+ times the device time of what is recommended: 10,000 devices", found.summary)
    assert "takes long" not in found.summary


def test_samples_longer_than_the_model_has_positions_are_said_and_shorter_runs_say_nothing_of_them() -> None:
    model, card = shape_of("qwen2.5-7b"), find_accelerator("h100-sxm")
    longer = can_it_run(model, card, "grpo", demand=Demand(max_prompt=1024, max_response=140_000))
    usual = can_it_run(model, card, "grpo")

    text = "A sample of 141,024 tokens is longer than the 131,072 positions of the model's config"
    assert any(text in line for line in longer.more)
    assert not any("positions" in line for line in usual.more)
    bearings = {run.row.id: run.bearing for run in longer.published}
    assert bearings["H04"] == "says nothing"  # it ran with 2,048 tokens a sample
    assert {run.row.id: run.bearing for run in usual.published}["H04"] == "supports"


def test_a_quantized_checkpoint_is_said_to_be_planned_in_16_bits() -> None:
    config = {**find_model("qwen3-8b").config, "quantization_config": {"quant_method": "fp8"}}
    found = can_it_run(read_shape(config), find_accelerator("a100-80-sxm"), "grpo", 8)
    packed = can_it_run(read_shape(config), find_accelerator("a100-80-sxm"), "sft-qlora", 8)
    plain = can_it_run(shape_of("qwen3-8b"), find_accelerator("a100-80-sxm"), "grpo", 8)

    assert any("Its checkpoint is quantized (fp8). Planned are weights of 16 bits" in line for line in found.more)
    assert not any("quantized" in line for line in (*plain.more, *packed.more))


def test_how_tight_it_is_is_the_share_of_the_phase_that_decides() -> None:
    """An engine fills its part on purpose: that phase takes more of a device, and decides nothing."""
    found = can_it_run(shape_of("qwen3-30b-a3b"), find_accelerator("a100-80-sxm"), "ppo", 8)

    assert found.at is not None
    assert found.at.estimate is not None
    note = next(note for note in found.at.estimate.notes if note.startswith("Tight: "))
    share = f"{found.at.binding_share:.0%}"
    assert note.startswith(f"Tight: {share} of what is usable; ")
    assert f"it takes {share.removesuffix('%')} % of a device's memory" in found.summary
    assert found.at.device_share > found.at.binding_share


def test_tight_is_said_with_its_share_and_the_direction_of_doubt() -> None:
    found = can_it_run(shape_of("qwen2.5-7b"), find_accelerator("rtx-4090"), "sft-lora", 1)

    assert re.search(r"It is tight: it takes 9\d % of a device's memory, known to ± ", found.summary)
    assert "it more likely runs than not" in found.summary


def test_a_layout_that_may_go_either_way_is_said_to_and_comes_after_surer_ones() -> None:
    """Experts of Transformers' modules took up to 2.8 times what is counted; those of Megatron are known."""
    surer = can_it_run(shape_of("qwen3-235b-a22b"), find_accelerator("h200-sxm"), "grpo", 64)
    unsure = can_it_run(shape_of("qwen3-30b-a3b"), find_accelerator("h100-sxm"), "sft", 8)

    for need in (surer.at, surer.need("nothing")):
        assert need is not None
        assert need.job is not None
        assert not need.is_unsure
        assert need.num_devices == 64
        assert need.job.policy.kernels == "megatron"
    assert "it more likely runs than not" in surer.summary
    assert unsure.at is not None
    assert unsure.at.is_unsure
    assert "it may go either way" in unsure.summary


def test_ways_beyond_the_usual_ones_are_tried_and_named() -> None:
    """Two H200 hold a mixture of 30 B in pure 16 bits alone, which learns something else and is never the headline."""
    asked, any_number = _mixture(2), _mixture()

    (pure,) = [need for need in any_number.others if need.on_host == "pure"]
    assert pure.num_devices == 2
    assert any("Pure 16-bit training" in line for line in any_number.more)
    assert asked.answer == "possible"
    hosted = can_it_run(shape_of("llama-3.1-70b"), find_accelerator("h200-sxm"), "grpo")
    (weights,) = [need for need in hosted.others if need.on_host == "weights"]
    assert weights.num_devices is not None
    assert hosted.practical is not None
    assert weights.num_devices < (hosted.practical.num_devices or 0)


def test_a_long_row_is_divided_and_its_checkpoints_leave_before_it_is_a_no() -> None:
    """One row of 256 Ki tokens has more checkpoints than a device holds; divided among eight it runs."""
    from jobs.planner.can_it_run.plans import Demand

    demand = Demand(max_prompt=1024, max_response=261_120, batch_size=8)
    found = can_it_run(shape_of("llama-3.1-8b"), find_accelerator("h100-sxm"), "sft", 8, demand=demand)

    assert found.answer == "yes"
    assert found.at is not None
    assert found.at.job is not None
    policy = found.at.job.policy
    assert found.at.on_host == "activations" or policy.layout.tensor > 1


@pytest.mark.parametrize(
    ("model", "device", "method"), [("qwen3-235b-a22b", "h200-sxm", "ppo"), ("qwen3-30b-a3b", "mi300x", "grpo")]
)
def test_the_fewest_take_what_is_recommended_where_their_own_layout_is_tight(
    model: str, device: str, method: str
) -> None:
    """On 48 H200 a layout with engines of four is tight at 99 %, on four MI300X another at 88 %; the recommended one
    holds as much on the host, and fits."""
    found = can_it_run(shape_of(model), find_accelerator(device), method)

    assert found.practical is not None
    assert found.practical == found.recommended
    assert not found.practical.is_tight
    assert not any(line.startswith("Recommended: ") for line in found.more)


def test_a_layout_is_not_recommended_in_the_words_of_the_fewest() -> None:
    found = can_it_run(shape_of("qwen3-8b"), find_accelerator("h100-sxm"), "sft-qlora")

    said = [line.removeprefix("Recommended: ") for line in found.more if line.startswith("Recommended: ")]
    assert all(line.replace(", ", " on, ", 1) not in found.summary for line in said)
