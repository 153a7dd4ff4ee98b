"""RunSpec.profile in verl's words: the knobs of the group profiling, which the adapter then writes as any others.

In a worker that several roles share verl reads the actor's switch alone; rollout engines are recorded by themselves,
and only stage by stage (`discrete`).
"""

from jobs.catalog.spec.own_profile import THEIRS, own_profile
from jobs.catalog.spec.runspec import KnobValue, RunSpec
from jobs.catalog.value import Value

_DISCRETE = {"torch": "profiling.torch_discrete", "msprof": "profiling.npu_discrete"}


def with_profile(spec: RunSpec) -> RunSpec:
    """Return the spec with its profile as knobs; the same spec if it has none that verl's own profiler records."""
    wanted = own_profile(spec)
    if spec.profile.what == "none" or wanted is None:
        return spec
    roles = wanted.roles or tuple(spec.workers)
    steps = range(wanted.first_step, wanted.first_step + wanted.num_steps)
    is_rollout = "vllm" in roles and wanted.tool in _DISCRETE
    said: dict[str, Value] = {
        "profiling.tool": THEIRS[wanted.tool],
        "profiling.steps": ",".join(map(str, steps)),
        "profiling.enable": True,
        "profiling.first_step": steps[0],
        "profiling.last_step": steps[-1],
        "profiling.policy": "policy" in roles,
        "profiling.reference": "reference" in roles,
        "profiling.critic": "critic" in roles,
        "profiling.rollout": "on" if is_rollout else "off",
        "profiling.all_ranks": not wanted.ranks,
        "profiling.ranks": ",".join(map(str, wanted.ranks)),
        "profiling.collect_results": True,
    }
    if is_rollout:
        said[_DISCRETE[wanted.tool]] = True
    contents = "profiling.torch_contents"
    if wanted.tool == "torch" and spec.profile.what == "memory" and contents in spec.knobs and not spec.knob(contents):
        said[contents] = "cpu,cuda,memory"
    mine = {knob: KnobValue(value=value, origin="you") for knob, value in said.items() if knob in spec.knobs}
    return spec.model_copy(update={"knobs": {**spec.knobs, **mine}})
