"""Matrix products run on the general cores although the device has faster ones for them."""

from collections.abc import Mapping

import numpy as np
import orjson

from profiling.diagnosis.device_work import DeviceWork, devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.diagnosis.matrix_units import Answer, answer_by_types, answer_of, has_matrix_units
from profiling.evidence import Evidence, Ints, RecordedTrace
from profiling.trace.category import Category

_LEAST = 0.05  # of the time in kernels: below, slow products do not matter
_MOST_UNKNOWN = 0.5  # of the time in products
_UNKNOWN = (
    "Most of the time in matrix products is in kernels whose names do not tell whether they use tensor cores. Record "
    "with record_shapes, which tells the types of Triton's, or look at the kernels with Nsight Compute."
)

_NO_PRODUCTS = InsufficientData(what="device_trace", text="No file holds kernels of matrix products.")


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    works = [work for work in devices(evidence) if has_matrix_units(_described(work))]
    observations = [seen for work in works if (seen := _seen(work))]
    if not observations and any(_times(work).get("not known") for work in works):
        return InsufficientData(what="device_trace", text=_UNKNOWN)
    return evaluate_worst(lambda _: observations, missing=_NO_PRODUCTS, is_low_bad=True)(evidence)


def _seen(work: DeviceWork) -> Observation | None:
    """Return what is known of a device's products; None where there are none, or most are not known."""
    times = _times(work)
    uses, does_not, unknown = (times.get(answer, 0) for answer in ("uses", "does not", "not known"))
    kernels = int(work.duration[work.kernels].sum())
    if not uses + does_not or unknown > _MOST_UNKNOWN * (uses + does_not + unknown):
        return None
    share = uses / (uses + does_not)
    return work.observation(
        share,
        is_firing=share < PLUGIN.watch and does_not >= _LEAST * kernels,
        slow=f"{100 * does_not / kernels:.0f} %",
        name=_longest(work) if does_not else "—",
    )


def _times(work: DeviceWork) -> Mapping[Answer, int]:
    """Return the time in kernels by whether they use matrix units. [ns]"""
    names = work.recorded.store.names
    numbers, place = np.unique(work.name[work.kernels], return_inverse=True)
    duration = work.duration[work.kernels]
    times: dict[Answer, int] = {}
    by_types = []
    for i, number in enumerate(numbers.tolist()):
        answer = answer_of(names[number])
        if answer == "by types":
            by_types.append(i)
        else:
            times[answer] = times.get(answer, 0) + int(duration[place == i].sum())
    if by_types:
        rows = np.isin(place, by_types)
        operators, duration = work.outer[work.kernels][rows], duration[rows]
        types = _types(work.recorded, operators)
        for operator in np.unique(operators).tolist():
            answer = answer_by_types(types.get(operator))
            times[answer] = times.get(answer, 0) + int(duration[operators == operator].sum())
    return times


def _types(recorded: RecordedTrace, operators: Ints) -> dict[int, object]:
    """Return the recorded types of inputs of operators by their number; those without are left out."""
    wanted = np.unique(operators[operators > 0]).tolist()
    rows = recorded.store.sql(
        'SELECT e."outer" AS number, i.text FROM ev e JOIN infos i ON i.id = e.info '
        'WHERE e.cat = ? AND list_contains(?, e."outer")',
        [int(Category.OPERATOR), wanted],
    )
    numbers, texts = rows["number"].tolist(), rows["text"].tolist()
    return {number: orjson.loads(text).get("Input type") for number, text in zip(numbers, texts, strict=True)}


def _longest(work: DeviceWork) -> str:
    """Return the kernel with most time of those that use none."""
    names = work.recorded.store.names
    numbers, place = np.unique(work.name[work.kernels], return_inverse=True)
    spent = np.bincount(place, weights=work.duration[work.kernels])
    slow = [i for i, number in enumerate(numbers.tolist()) if answer_of(names[number]) == "does not"]
    return names[int(numbers[max(slow, key=lambda i: spent[i])])][:80]


def _described(work: DeviceWork) -> dict[str, object]:
    """Return what the trace says of the device, {} where it says nothing."""
    described = work.recorded.store.meta.get("devices")
    about = described if isinstance(described, list) else []
    return next((one for one in about if isinstance(one, dict) and one.get("id") == work.device), {})


PLUGIN = Rule(
    title="Tensor cores unused",
    question="why",
    definition="Time in matrix products on tensor cores (matrix units) divided by the time in all products of which "
    "the kernel's name says it; it fires where those without take 5 % of the kernels' time or more. More than half "
    "unknown is not enough data.",
    unit="share",
    watch=0.50,
    bad=0.10,
    is_low_bad=True,
    source="a table of kernel names, profiling/diagnosis/matrix_units.toml; the thresholds are ours",
    needs=("device_trace",),
    fires="{value} of the time in matrix products of {device} uses tensor cores; those without take {slow} of the "
    "kernels' time, most of it {name}.",
    clear="{value} of the time in matrix products of {device} uses tensor cores; those without take {slow} of the "
    "kernels' time.",
    advice="Train in bf16 and allow TF32; before Ampere there is neither, and fp16 is the way. Keep sizes multiples of "
    "8 (16 for fp8).",
    changes=(KnobChange("memory.precision", "choose"), KnobChange("memory.master_precision", "choose")),
    evaluate=_evaluate,
)
