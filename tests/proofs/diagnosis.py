"""`make proof-diagnosis`: faults planted in real runs are found, and their twins without the fault are clear of them.

Each case is a GRPO run on a Ray head of its own (DeepSpeed, vLLM), with one fault of tests/proofs/planted or of its
spec. The twin is the same run without it. Arguments: names of cases; nothing for all; `corpus` for recordings made in
code alone. Writes docs/proofs/diagnosis.md.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiling.diagnosis.finding import Finding, finding_of, rules
from tests.jobs.engine.conftest import EndedRun, Running
from tests.proofs.diagnosis_corpus import count, section, with_section
from tests.proofs.run_evidence import evidence_of
from tests.ray_head import HOUSE, RayHead, running_head

REPORT = HOUSE / "docs" / "proofs" / "diagnosis.md"
PLANTED = HOUSE / "tests" / "proofs" / "planted"
ENGINE = ("jobs.engine", "--device=cpu")
STEPS = 16
SLOW_REWARD = "import time\n\n\ndef reward(prompt, completion, answer):\n    time.sleep(0.06)\n    return 1.0\n"
KNOBS: dict[str, Any] = {
    "train.num_steps": STEPS,
    "eval.num_prompts": 0,
    "checkpoint.every_steps": 5,
    "train.micro_batch_size": 8,
    "rollout.max_new_tokens": 48,
}
SPEC: dict[str, Any] = {
    "algorithm": "grpo",
    "hardware": {"layout": "split"},  # where colocated, the ranks of the policy draw and there is no engine
    "profile": {"nsys_ready": "off"},
    "knobs": KNOBS,
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault, the rule that has to find it, and whom it has to name."""

    rule: str
    text: str
    planted: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    twin_spec: Mapping[str, Any] = field(default_factory=dict)
    role: str = ""
    rank: int = -1


CASES: dict[str, Case] = {
    "slow reward": Case(
        rule="slow_reward",
        text="a reward of 60 ms an answer",
        spec={"reward": {"kind": "custom", "file_name": "slow.py", "source": SLOW_REWARD}},
    ),
    "straggler rank": Case(
        rule="straggler",
        text="policy 1 sleeps 150 ms before each forward pass",
        planted="straggler",
        role="policy",
        rank=1,
    ),
    "tiny micro-batches": Case(
        rule="tiny_micro_batches",
        text="32 answers a rank, one by one",
        spec={"knobs": {"train.micro_batch_size": 1, "rollout.samples_per_prompt": 16}},
        twin_spec={"knobs": {"train.micro_batch_size": 16, "rollout.samples_per_prompt": 16}},
    ),
    "long tail": Case(
        rule="rollout_tail", text="one answer of 16 is 48 tokens long, the others 4", planted="long_tail"
    ),
    "nearly empty engine": Case(
        rule="engine_occupancy", text="one answer of 16 is 48 tokens long, the others 4", planted="long_tail"
    ),
    "sync stall": Case(rule="weight_sync_slow", text="each sending of weights waits 800 ms", planted="sync_stall"),
    "disk stall": Case(
        rule="checkpoint_stall", text="each file of a checkpoint takes a second more", planted="disk_stall"
    ),
    "slow data": Case(rule="data_wait", text="each batch comes 800 ms late", planted="slow_data"),
    "host-bound loop": Case(rule="host_loop", text="the loop sleeps 800 ms between steps", planted="host_loop"),
    "memory growth": Case(
        rule="memory_growth",
        text="each policy keeps 24 MiB more with each step",
        planted="memory_growth",
        role="policy",
    ),
    "recompilation": Case(
        rule="recompilation", text="two functions are compiled anew in each update", planted="recompilation"
    ),
    "outlying step": Case(
        rule="outlier_step",
        text="policy 1 sleeps 2.5 s before each forward pass of step 7",
        planted="outlier",
        role="policy",
        rank=1,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the rule said of the run with the fault and of its twin."""

    name: str
    case: Case
    planted: Finding
    twin: Finding

    @property
    def is_right(self) -> bool:
        """It fired on the fault, named who was named, and was clear on the twin."""
        seen = self.planted.observation
        if self.planted.state != "fires" or seen is None or self.twin.state != "clear":
            return False
        return (not self.case.role or seen.role == self.case.role) and self.case.rank in (-1, seen.rank)


class Runs:
    """Runs on one head, whose processes have the plants; twins are run once each."""

    def __init__(self, head: RayHead, folder: Path, switch: Path) -> None:
        self._head, self._folder, self._switch = head, folder, switch
        self._twins: dict[str, EndedRun] = {}

    def with_fault(self, name: str, case: Case) -> EndedRun:
        """Return the run with the fault of the case."""
        return self._run(name.replace(" ", "-"), case.spec, case.planted)

    def twin(self, case: Case) -> EndedRun:
        """Return the run without it."""
        key = repr(case.twin_spec)
        if key not in self._twins:
            self._twins[key] = self._run(f"twin-{len(self._twins)}", case.twin_spec, "")
        return self._twins[key]

    def _run(self, name: str, changes: Mapping[str, Any], planted: str) -> EndedRun:
        self._switch.write_text(planted)
        spec = {**SPEC, **changes, "knobs": KNOBS | dict(changes.get("knobs", {}))}
        begin = time.monotonic()
        folder = self._folder / name
        folder.mkdir()
        asked = {"capture": "proof", "tool": "torch", "first_step": 2, "num_steps": 2, "roles": ["policy", "vllm"]}
        (folder / "commands.jsonl").write_text(json.dumps({"number": 1, "verb": "profile", "payload": asked}) + "\n")
        ended = Running(folder, spec, self._head, ENGINE).wait(600)
        assert ended.code == 0, ended.output[-2000:]
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
        return ended


@contextmanager
def planted_head() -> Iterator[Runs]:
    """A Ray head whose processes, and drivers started from here, carry the plants."""
    with tempfile.TemporaryDirectory(prefix="pw-planted-") as made:
        folder = Path(made)
        switch = folder / "switch"
        switch.write_text("")
        before = dict(os.environ)
        os.environ["PITWALL_PLANTED"] = str(switch)
        try:
            with running_head(first_on_path=PLANTED) as head:
                yield Runs(head, folder, switch)
        finally:
            os.environ.clear()
            os.environ.update(before)


def prove(runs: Runs, name: str) -> Result:
    """Run a case and its twin."""
    case = CASES[name]
    rule = rules()[case.rule]
    found = finding_of(case.rule, rule, evidence_of(runs.with_fault(name, case)))
    twin = finding_of(case.rule, rule, evidence_of(runs.twin(case)))
    return Result(name=name, case=case, planted=found, twin=twin)


def _report(results: list[Result]) -> str:
    lines = [
        "# Planted faults and what diagnosis says of them",
        "",
        "`make proof-diagnosis`: a GRPO run on a Ray head (two DeepSpeed ranks, vLLM, a reference) with one fault, and",
        f"the same run without it. {STEPS} steps, torch captures of steps 2 and 3.",
        "",
        "| fault | rule | with the fault | its twin | |",
        "|---|---|---|---|---|",
    ]
    for one in results:
        verdict = "right" if one.is_right else "**wrong**"
        lines.append(
            f"| {one.name}: {one.case.text} | {one.case.rule} | {one.planted.state}: {one.planted.sentence()} "
            f"| {one.twin.state}, {one.twin.value} | {verdict} |"
        )
    lines += ["", f"{sum(one.is_right for one in results)} of {len(results)} right.", ""]
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run the cases; return 1 if one is wrong."""
    if names == ["corpus"]:
        counts = count()
        REPORT.write_text(with_section(REPORT.read_text(), section(counts)))
        print(section(counts))
        return 0 if counts.is_right else 1
    with planted_head() as runs:
        results = []
        for name in names or list(CASES):
            results.append(prove(runs, name))
            one = results[-1]
            print(f"  {'right' if one.is_right else 'WRONG'}: {one.planted.sentence()} | twin: {one.twin.sentence()}")
    text = _report(results)
    print(text)
    if not names:
        REPORT.write_text(with_section(text, section(count())))
    return 0 if all(one.is_right for one in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
