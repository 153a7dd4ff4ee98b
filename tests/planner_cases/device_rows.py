"""Cases made of the published device table: each row asks for the fewest devices of its model and method."""

from collections.abc import Mapping

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.device_table import DeviceRow, device_table
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.job import Fleet
from tests.planner_cases.load import Case
from tests.planner_cases.model import UnknownModel, read_model
from tests.planner_cases.truth import Truth

_MODELS: Mapping[str, str] = {  # how the table names a model: what stands for it in the catalogue
    "Qwen2-7B-Instruct": "qwen2-7b",
    "Qwen2.5-Coder-14B-Instruct": "qwen2.5-14b",
    "Qwen2-72B-Instruct": "qwen2-72b",
    "DeepSeek-V3 671B": "deepseek-v3",
    "8B (any)": "llama-3.1-8b",
    "13B (any)": "llama-2-13b",
    "34B (any)": "qwen2.5-32b",
}
_DEVICES: Mapping[
    str, str
] = {  # what is not named: a card of the memory given, or the card of the same page's other rows
    "any of 80 GB": "a100-80-sxm",
    "not named": "h20",
    "A100": "a100-80-sxm",
    "H100": "h100-sxm",
    "H800": "h800-sxm",
    "H20": "h20",
}
_HOST_GB = 1600  # the nodes of the rows that say it


def device_cases() -> tuple[Case, ...]:
    """Return a case per row of the table that has a number of devices, in its order."""
    return tuple(_case(row) for row in device_table().values() if row.num_devices)


def _case(row: DeviceRow) -> Case:
    settings = row.settings
    problem = ""
    model, config = None, {}
    try:
        model, config = read_model(_MODELS.get(row.model, row.model.lower()))  # type: ignore[assignment]
    except UnknownModel as error:
        problem = str(error)
    is_on_host = bool(settings.get("memory.megatron_cpu_optimizer"))
    default = Demand()
    return Case(
        id=row.id,
        row=row.id,
        types=("B",),
        quality="V",
        source=row.source,
        text=f"{row.model}, {row.method}, {row.num_devices} x {row.device}: {row.notes}",
        framework="",
        counts="device",
        model=model,
        config=config,
        fleet=Fleet(
            accelerator=find_accelerator(_DEVICES.get(row.device, row.device)),
            num_devices=row.num_devices,
            host_bytes=_HOST_GB * 10**9 if is_on_host else 0,
        ),
        job=None,
        engine=None,
        rollouts=None,
        truth=Truth(numbers={"min_devices": row.num_devices}),
        problem=problem,
        method=row.method.lower(),
        demand=Demand(
            max_prompt=settings.get("rollout.max_prompt_tokens", default.max_prompt),
            max_response=settings.get("rollout.max_new_tokens", default.max_response),
            prompts=settings.get("rollout.prompts_per_step", default.prompts),
            samples_per_prompt=settings.get("rollout.samples_per_prompt", default.samples_per_prompt),
        ),
        is_on_host=is_on_host,
    )
