"""Which tool is selected for what people want to see: a table of cases, and what must hold for all of them."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from profiling.config import TOOLS, WHATS, Device, What
from profiling.recorders.recorder import (
    PassedTool,
    candidates,
    device_of,
    load_tool,
    planned_tool,
    seen_in,
    select_tool,
    shown_by,
    without,
)

DEVICES: tuple[Device, ...] = get_args(Device)
NO_NSYS = "nsys is not installed on node a."
NO_MEMORY = "Torch keeps no memory history on CPU."
HELD = "This worker was started ready for nsys."
ON_CPU = {"torch": "", "stacks": "", "memory": NO_MEMORY, "msprof": "no torch_npu"}
ON_CUDA = {"stacks": "", "memory": "", "msprof": "no torch_npu"}


def worker_tools(*told: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    return {f"policy {rank}": tools for rank, tools in enumerate(told)}


PLAIN_CPU = worker_tools({**ON_CPU, "nsys": NO_NSYS}, {**ON_CPU, "nsys": NO_NSYS})
NSYS_CPU = worker_tools({**ON_CPU, "nsys": ""}, {**ON_CPU, "nsys": ""})
PLAIN_CUDA = worker_tools({**ON_CUDA, "torch": "", "nsys": NO_NSYS}, {**ON_CUDA, "torch": "", "nsys": NO_NSYS})
NSYS_CUDA = worker_tools({**ON_CUDA, "torch": HELD, "nsys": ""}, {**ON_CUDA, "torch": HELD, "nsys": ""})
MIXED_CUDA = worker_tools({**ON_CUDA, "torch": HELD, "nsys": ""}, {**ON_CUDA, "torch": "", "nsys": NO_NSYS})
ASCEND = worker_tools({"torch": "", "stacks": "", "memory": NO_MEMORY, "nsys": NO_NSYS, "msprof": ""})
SILENT = worker_tools({}, {})


@pytest.mark.parametrize(
    ("what", "device", "workers", "tool", "recorded"),
    [
        ("timing", "cpu", PLAIN_CPU, "torch", "timing"),
        ("timing", "cpu", NSYS_CPU, "nsys", "timing"),
        ("timing", "cuda", NSYS_CUDA, "nsys", "timing"),
        ("timing", "npu", ASCEND, "msprof", "timing"),
        ("operators", "cpu", NSYS_CPU, "torch", "operators"),
        ("operators", "cuda", PLAIN_CUDA, "torch", "operators"),
        ("operators", "cuda", NSYS_CUDA, "", "operators"),
        ("operators", "npu", ASCEND, "msprof", "operators"),
        ("kernels", "cpu", PLAIN_CPU, "torch", "operators"),
        ("kernels", "cpu", NSYS_CPU, "torch", "operators"),
        ("kernels", "cuda", PLAIN_CUDA, "torch", "kernels"),
        ("kernels", "cuda", NSYS_CUDA, "nsys", "kernels"),
        ("kernels", "cuda", MIXED_CUDA, "nsys", "kernels"),
        ("kernels", "npu", ASCEND, "msprof", "kernels"),
        ("memory", "cpu", PLAIN_CPU, "torch", "memory"),
        ("memory", "cuda", PLAIN_CUDA, "memory", "memory"),
        ("memory", "npu", ASCEND, "", "memory"),
        ("communication", "cpu", PLAIN_CPU, "torch", "communication"),
        ("communication", "cuda", NSYS_CUDA, "nsys", "communication"),
        ("communication", "cuda", PLAIN_CUDA, "torch", "communication"),
        ("communication", "npu", ASCEND, "msprof", "communication"),
        ("stacks", "cpu", PLAIN_CPU, "stacks", "stacks"),
        ("stacks", "npu", ASCEND, "stacks", "stacks"),
        ("timing", "cuda", SILENT, "torch", "timing"),  # nsys takes a worker that has said so
        ("memory", "cuda", SILENT, "memory", "memory"),
    ],
)
def test_the_tool_goes_by_device_and_by_what_is_there(
    what: What, device: Device, workers: Mapping[str, Mapping[str, str]], tool: str, recorded: What
) -> None:
    found = select_tool(what, device=device, workers=workers)

    assert (found.tool, found.recorded) == (tool, recorded)


def test_it_says_who_would_have_come_first_and_who_lacks_the_selected_one() -> None:
    third = worker_tools({**ON_CUDA, "torch": "", "nsys": NO_NSYS}, {**ON_CUDA, "torch": "", "nsys": ""})
    passed = select_tool("kernels", device="cuda", workers=third)
    part = select_tool("kernels", device="cuda", workers=MIXED_CUDA)
    none = select_tool("operators", device="cuda", workers=NSYS_CUDA)
    nothing = select_tool("memory", device="npu", workers=ASCEND)

    assert (passed.tool, passed.passed) == ("torch", (PassedTool(tool="nsys", lacking={"policy 0": NO_NSYS}),))
    assert (part.able, part.lacking, part.passed) == (("policy 0",), {"policy 1": NO_NSYS}, ())
    assert none.passed == (PassedTool(tool="torch", lacking={"policy 0": HELD, "policy 1": HELD}),)
    assert (none.able, nothing.passed) == ((), ())


def test_the_one_on_most_workers_is_taken_where_none_is_on_all() -> None:
    two_have_torch = worker_tools(
        {**ON_CUDA, "torch": "", "nsys": NO_NSYS},
        {**ON_CUDA, "torch": HELD, "nsys": ""},
        {**ON_CUDA, "torch": "", "nsys": NO_NSYS},
    )

    found = select_tool("kernels", device="cuda", workers=two_have_torch)

    assert (found.tool, found.able, found.lacking) == ("torch", ("policy 0", "policy 2"), {"policy 1": HELD})
    assert found.passed[0].tool == "nsys"


def test_every_pick_is_of_a_tool_that_shows_it_on_workers_that_have_it() -> None:
    states = [
        {"torch": t, "torch_pieces": t, "nsys": n, "memory": m, "msprof": "x", "stacks": ""}
        for t, n, m in itertools.product(("", HELD), ("", NO_NSYS), ("", NO_MEMORY))
    ]
    for what, device, pair in itertools.product(WHATS, DEVICES, itertools.combinations(states, 2)):
        workers = worker_tools(*pair)
        found = select_tool(what, device=device, workers=workers)
        able = {
            tool: {name for name, tools in workers.items() if tools[tool] == ""}
            for tool in candidates(found.recorded, device)
        }
        if found.tool:
            assert found.recorded in shown_by(found.tool, device)
            assert not load_tool(found.tool).is_only_named
            assert set(found.able) == able[found.tool]
            assert len(found.able) == max(map(len, able.values())) > 0
            assert {*found.able, *found.lacking} == set(workers)
        else:
            assert not any(able.values())


def test_what_a_tool_shows_and_what_not_divide_what_the_device_has() -> None:
    for tool, device in itertools.product(TOOLS, DEVICES):
        for what in shown_by(tool, device):
            seen = seen_in(tool, what, device=device)
            assert what in seen
            assert not set(seen) & set(without(device=device, seen=seen))
    seen = seen_in("nsys", "kernels", device="cuda")
    assert seen == ("kernels", "communication", "timing")
    assert without(device="cuda", seen=seen) == ("operators", "memory", "stacks")
    seen = seen_in("torch", "operators", device="cpu")
    assert without(device="cpu", seen=seen) == ("memory", "stacks")  # a CPU has no kernels to miss
    assert without(device="cpu", seen=seen_in("torch", "memory", device="cpu")) == ("stacks",)


def test_the_device_is_told_by_tools_of_one_device() -> None:
    assert device_of(list(PLAIN_CUDA.values()), planned="cpu") == "cuda"
    assert device_of(list(ASCEND.values()), planned="cuda") == "npu"
    assert device_of(list(PLAIN_CPU.values()), planned="cpu") == "cpu"
    assert device_of(list(SILENT.values()), planned="cuda") == "cuda"


@pytest.mark.parametrize(
    ("what", "tool", "device", "planned"),
    [
        ("none", "none", "cuda", "none"),
        ("kernels", "torch", "cuda", "torch"),
        ("kernels", "none", "cuda", "nsys"),
        ("kernels", "none", "cpu", "torch"),
        ("operators", "none", "cuda", "torch"),
        ("memory", "none", "npu", "none"),
    ],
)
def test_before_there_are_workers_the_first_tool_is_planned(
    what: What, tool: str, device: Device, planned: str
) -> None:
    assert planned_tool(what, tool, device=device) == planned


def test_the_table_of_the_documentation_holds() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "use" / "profile.md").read_text(encoding="utf-8")
    table = page.partition("| what | CPU | CUDA | Ascend |\n")[2].partition("\n\n")[0]
    rows = {line.split("|")[1].split()[0]: line.split("|")[2:5] for line in table.splitlines()[1:]}

    for what in WHATS:
        for device, cell in zip(DEVICES, rows[what], strict=True):
            named = [tool for tool in cell.replace("memory snapshot", "memory").strip().split(", ") if tool in TOOLS]
            assert named == list(candidates(what, device)), (what, device)
