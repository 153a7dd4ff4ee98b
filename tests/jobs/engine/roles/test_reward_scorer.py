"""A frozen reward model in a rank: what it gives back of the device, and that it scores all the same."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from transformers import AutoModelForSequenceClassification, Qwen2Config

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.roles import reward_scorer
from jobs.engine.roles.reward_scorer import RewardScorer
from tests.jobs.engine.roles.test_head import SIZES, batch_of
from tests.jobs.engine.roles.test_value_head import save


@pytest.fixture
def scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RewardScorer:
    """One on a device that stands for a GPU of this process; where its model is told to go is recorded."""
    folder = save(Qwen2Config(**SIZES, num_labels=1), tmp_path, auto=AutoModelForSequenceClassification)
    device = Mock(**{"torch_device.return_value": "cpu:0"})
    monkeypatch.setattr(reward_scorer, "load_device", lambda _: device)
    spec = parse_spec({"algorithm": "grpo", "reward": {"kind": "model", "location": str(folder)}})
    return RewardScorer(spec=spec, device="cuda")


def test_while_the_device_is_anothers_it_is_there_only_for_as_long_as_it_scores(
    scorer: RewardScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, places = batch_of([9, 4, 12]), []
    model: Any = scorer._model
    move = model.to
    monkeypatch.setattr(model, "to", lambda place: places.append(place) or move(place))

    before = scorer.scores(batch)
    scorer.off()
    away = scorer.scores(batch)
    scorer.back()

    assert before.shape == (3,)
    assert before.std() > 0
    assert away.tolist() == before.tolist()
    assert places == ["cpu", "cpu:0", "cpu", "cpu:0"]
