"""How roles are started, without a cluster."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.session import ROLE_CLASSES, Session

CPU = SimpleNamespace(name="cpu", gpus_per_worker=0.0, gives_back_memory=False)


@pytest.mark.parametrize(
    ("layout", "apart"), [("colocated", []), ("shared", ["vllm"]), ("split", ["vllm", "reference", "critic"])]
)
def test_roles_that_the_policys_ranks_hold_are_not_started_as_workers(layout: str, apart: list[str]) -> None:
    spec = parse_spec({"algorithm": "ppo", "hardware": {"layout": layout, "policy_ranks": 1}})
    members = {name: [Mock(rank=0)] for name in ("policy", *apart)}
    workers = Mock(by_role=members)
    workers.address_of.return_value = ("127.0.0.1", 29500)
    session = cast(Any, SimpleNamespace(_classes=ROLE_CLASSES))

    started = Session._start_roles(session, spec, workers, cast(Any, CPU), cast(Any, SimpleNamespace(eos_ids=[0])))

    assert len(started) == len(members)
    for ranks in members.values():
        ranks[0].start.assert_called_once()
