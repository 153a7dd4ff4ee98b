"""Policy ranks and a rollout engine called one by one: what ZeRO may not change, and what a faulty sync does."""

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ended

pytestmark = pytest.mark.engine

ZERO_STAGES = """
import json, os, ray, torch
from pathlib import Path
from jobs.catalog.runspec import parse_spec
from jobs.engine.algorithm import Counts
from jobs.engine.crew import Crew
from jobs.engine.dataset import load_table
from jobs.engine.batch import make_batch, share_out
from jobs.engine.device import load_device
from jobs.engine.examples import render, usable
from jobs.engine.session import ROLE_CLASSES
from jobs.engine.sources import model_folder
from jobs.engine.text import TextModel

run_dir = Path({run_dir!r})
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
base = dict(json.loads((run_dir / "spec.json").read_text()))
readings, found = dict(), dict()
spec = parse_spec(base)
text = TextModel(model_folder(spec.model))
rows = load_table(spec.data, inputs_dir=run_dir).train[:160]
examples = usable(spec, render(spec, rows, text))
crew = Crew(spec, load_device("cpu"), log_dir=str(run_dir / "log"),
            on_answer=lambda worker, answer: readings.__setitem__((worker.role, worker.rank), dict(answer.readings)), check=lambda: None)
for variant, changes in {variants!r}.items():
    spec = parse_spec(base | dict(knobs=base["knobs"] | changes))
    host, port = crew.address_of(crew.policies[0])
    crew.gather([p.start(ROLE_CLASSES["policy"], spec=spec, rank=p.rank, world_size=2, host=host, port=port, device="cpu") for p in crew.policies])
    losses, norms = [], []
    for step in range(5):
        batch = make_batch([(e.tokens, e.is_trained) for e in examples[step * 32 : step * 32 + 32]], pad_id=text.pad_id)
        shares = share_out(32, num_updates=1, num_ranks=2, seed=str(step))
        counts = [Counts(num_tokens=batch.num_trained_tokens, num_sequences=32)]
        told = crew.gather([p.call("update", [batch.rows(i) for i in s], counts, 1e-3, step=step) for p, s in zip(crew.policies, shares)])
        losses.append(sum(t[0]["loss/sft"] for t in told))
        norms.append(told[0][0]["policy/grad_norm"])
    state = crew.gather([p.call("readings") for p in crew.policies])
    found[variant] = dict(losses=losses, norms=norms, readings=state)
(run_dir / "found.json").write_text(json.dumps(found))
crew.close()
"""

VARIANTS: dict[str, dict[str, Any]] = {
    "0": {"memory.zero_stage": "0"},
    "1": {"memory.zero_stage": "1"},
    "2": {"memory.zero_stage": "2"},
    "micro": {"memory.zero_stage": "2", "train.micro_batch_size": 3},
    "recompute": {"memory.zero_stage": "1", "memory.gradient_checkpointing": True},
    "3": {"memory.zero_stage": "3"},
}

SYNC = """
import json, os, ray, torch
from pathlib import Path
from jobs.catalog.runspec import parse_spec
from jobs.engine.algorithm import Counts
from jobs.engine.batch import stable_seed
from jobs.engine.crew import Crew
from jobs.engine.device import load_device
from jobs.engine.examples import Example
from jobs.engine.rollout import largest_gap, roll_out
from jobs.engine.session import ROLE_CLASSES
from jobs.engine.sources import model_folder
from jobs.engine.text import TextModel
from jobs.engine.weights import WeightSync

run_dir = Path({run_dir!r})
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
spec = parse_spec(json.loads((run_dir / "spec.json").read_text()))
text = TextModel(model_folder(spec.model))
prompt = text.prompt([dict(role="user", content="Ana has 12 pens and gets 5 more. How many pens now? " * 12)])
ids = tuple(text.encode(prompt))
example = Example(row=0, prompt=prompt, answer="17", segments=(), tokens=ids, is_trained=(False,) * len(ids))
crew = Crew(spec, load_device("cpu"), log_dir=str(run_dir / "log"), on_answer=lambda worker, answer: None, check=lambda: None)
host, port = crew.address_of(crew.policies[0])
crew.gather([
    crew.generators[0].start("tests.jobs.engine.faulty:SwitchableGenerator", spec=spec, device="cpu", eos_ids=text.eos_ids),
    *[p.start(ROLE_CLASSES["policy"], spec=spec, rank=p.rank, world_size=1, host=host, port=port, device="cpu") for p in crew.policies],
])
weights = WeightSync(crew)
weights.connect()
weights.sync(step=0)
number = 0

def gap():
    global number
    number += 1
    rollout = roll_out(crew, [example], samples_per_prompt=4, seed=0, step=number)
    batch = rollout.batch(pad_id=text.pad_id)
    (logprobs,) = crew.gather([crew.policies[0].call("logprobs", batch)])
    return largest_gap(rollout.laid_logprobs(batch.tokens_BL.shape[1]), logprobs, batch.mask_BL)

def learn():
    rollout = roll_out(crew, [example], samples_per_prompt=4, seed=1, step=number)
    batch = rollout.batch(pad_id=text.pad_id)
    (logprobs,) = crew.gather([crew.policies[0].call("logprobs", batch)])
    from dataclasses import replace
    batch = replace(batch, advantages_B=torch.tensor([1.0, -1.0, 0.5, -0.5]), old_logprobs_BL=logprobs)
    counts = [Counts(num_tokens=batch.num_trained_tokens, num_sequences=4)]
    crew.gather([crew.policies[0].call("update", [batch], counts, 3e-3)])

def sync(finish):
    crew.gather([g.call("start_update") for g in crew.generators])
    calls = [g.call("receive_update", weights._metadata) for g in crew.generators] + [p.call("send_weights") for p in crew.policies]
    crew.gather(calls)
    crew.gather([g.call(finish) for g in crew.generators])

found = dict(prompt_tokens=len(ids), start=gap())
learn()
found["skipped"] = gap()
weights.sync(step=1)
found["right"] = gap()
learn(); sync("finish_without_reset")
found["stale_cache"] = gap()
weights.sync(step=2)
found["right_again"] = gap()
learn(); sync("finish_without_head")
found["stale_head"] = gap()
weights.sync(step=3)
found["right_at_last"] = gap()
(run_dir / "found.json").write_text(json.dumps(found))
crew.close()
"""


def _found(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.output
    return json.loads((ended.run_dir / "found.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def stages(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Five steps of SFT on two ranks, once for each variant."""
    run_dir = tmp_path_factory.mktemp("stages")
    spec = {"algorithm": "sft", "knobs": {"train.batch_size": 32}}
    return _found(start_engine(run_dir, spec, code=ZERO_STAGES.format(run_dir=str(run_dir), variants=VARIANTS)).wait())


@pytest.fixture(scope="module")
def gaps(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The largest difference of log-probabilities after good and bad syncs, for a prompt longer than a cache block."""
    run_dir = tmp_path_factory.mktemp("sync")
    knobs = {"rollout.prompts_per_step": 1, "rollout.samples_per_prompt": 4, "rollout.max_prompt_tokens": 400}
    spec = {
        "hardware": {"policy_ranks": 1},
        "knobs": knobs | {"algorithm.kl_coefficient": 0, "optimizer.max_grad_norm": 0},
    }
    return _found(start_engine(run_dir, spec, code=SYNC.format(run_dir=str(run_dir))).wait())


@pytest.mark.parametrize("variant", ["1", "2", "3", "micro", "recompute"])
def test_losses_and_gradients_are_those_of_one_plain_replica(stages: dict[str, Any], variant: str) -> None:
    assert len(stages["0"]["losses"]) == 5
    assert stages[variant]["losses"] == pytest.approx(stages["0"]["losses"], abs=1e-5)
    assert stages[variant]["norms"] == pytest.approx(stages["0"]["norms"], rel=1e-3)


def test_five_steps_lower_the_loss(stages: dict[str, Any]) -> None:
    assert stages["0"]["losses"][4] < stages["0"]["losses"][0]


def test_each_zero_stage_holds_less_per_rank(stages: dict[str, Any]) -> None:
    whole = 657_024 * 4
    held = {stage: stages[stage]["readings"][0] for stage in "0123"}

    assert [held[s]["parameter_bytes"] >= whole for s in "0123"] == [True, True, True, False]
    assert held["3"]["parameter_bytes"] <= 0.52 * whole
    assert held["0"]["gradient_bytes"] >= whole
    assert held["2"]["gradient_bytes"] <= 0.6 * held["0"]["gradient_bytes"]
    assert held["0"]["optimizer_bytes"] >= 2 * whole  # two moments, all of them
    for stage in "123":  # half of two moments and of the master weights
        assert held[stage]["optimizer_bytes"] <= 0.8 * held["0"]["optimizer_bytes"]


def test_the_prompt_is_longer_than_a_cache_block(gaps: dict[str, float]) -> None:
    assert gaps["prompt_tokens"] > 128


@pytest.mark.parametrize("when", ["start", "right", "right_again", "right_at_last"])
def test_a_sync_brings_vllm_to_the_trainer(gaps: dict[str, float], when: str) -> None:
    assert 0 < gaps[when] <= 1e-3


@pytest.mark.parametrize("fault", ["skipped", "stale_cache", "stale_head"])
def test_a_skipped_sync_a_stale_cache_and_an_unrefreshed_head_are_seen(gaps: dict[str, float], fault: str) -> None:
    assert gaps[fault] > 1e-3
