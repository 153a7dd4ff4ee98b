"""What a run asks to record, in verl's keys; and what the names of its profiler's files say."""

from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.catalog.spec.own_profile import starts_under_nsys
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from tests.jobs.adapters.verl.test_adapter import RUN_DIR, command, settings


def profile_keys(raw: dict[str, Any]) -> dict[str, Any]:
    data = {"kind": "path", "id": "/d.parquet"}
    return {key: value for key, value in settings(command({"data": data} | raw)).items() if "profil" in key}


def test_what_a_run_asks_to_record_is_told_to_verls_own_profiler() -> None:
    profile = {"what": "operators", "first_step": 3, "num_steps": 2, "roles": "policy", "ranks": "0,2"}
    knobs = {"placement.policy_gpus_per_node": 4}

    given = profile_keys({"algorithm": "grpo", "profile": profile, "knobs": knobs})

    actor = "actor_rollout_ref.actor.profiler"
    assert given == {
        "global_profiler.tool": "torch",
        "global_profiler.steps": [3, 4],
        "global_profiler.save_path": str(RUN_DIR / "profile"),
        "global_profiler.relocate_results": True,
        f"{actor}.enable": True,
        f"{actor}.ranks": [0, 2],
        "actor_rollout_ref.ref.profiler.ranks": [0, 2],
        "actor_rollout_ref.rollout.profiler.enable": False,
    }


def test_rollout_engines_are_recorded_stage_by_stage_where_they_are_asked_for() -> None:
    profile = {"what": "operators", "first_step": 3, "num_steps": 1, "roles": "vllm"}

    given = profile_keys({"algorithm": "grpo", "profile": profile})

    assert given["actor_rollout_ref.rollout.profiler.enable"] is True
    assert given["actor_rollout_ref.actor.profiler.tool_config.torch.discrete"] is True
    assert "actor_rollout_ref.actor.profiler.enable" not in given


def test_fine_tuning_is_recorded_by_an_interval() -> None:
    profile = {"what": "memory", "tool": "torch", "first_step": 3, "num_steps": 2}

    assert profile_keys({"algorithm": "sft", "profile": profile}) == {
        "profiler.save_path": str(RUN_DIR / "profile"),
        "profiler.enable": True,
        "trainer.profile_interval": [3, 4],
        "profiler.all_ranks": True,
        "profiler.tool_config.torch.contents": ["cpu", "cuda", "memory"],
    }


def test_what_verl_does_not_record_leaves_its_profiler_alone() -> None:
    assert profile_keys({"algorithm": "grpo", "profile": {"what": "stacks"}}) == {}


@pytest.mark.parametrize(
    ("raw", "field", "sentence"),
    [
        (
            {"algorithm": "grpo", "profile": {"what": "kernels", "tool": "nsys", "roles": "vllm"}},
            "profile.roles",
            "records no rollout engines",
        ),
        (
            {"algorithm": "grpo", "profile": {"what": "operators"}, "knobs": {"profiling.tool": "nsys"}},
            "knobs.profiling.tool",
            "set twice",
        ),
        (
            {
                "algorithm": "grpo",
                "trainer": {"name": "verl", "version": "0.7.0"},
                "profile": {"what": "kernels", "tool": "nsys"},
            },
            "profile.tool",
            "nothing collects them",
        ),
        (
            {
                "algorithm": "grpo",
                "trainer": {"name": "openrlhf"},
                "profile": {"what": "kernels", "tool": "nsys"},
            },
            "profile.tool",
            "OpenRLHF 0.11.2 cannot be recorded with nsys here. Use memory, stacks, torch.",
        ),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_the_launch(raw: dict[str, Any], field: str, sentence: str) -> None:
    source = {"kind": "path", "id": "/m"}
    anywhere = {"model": source, "data": source, "trainer": {"name": "verl"}}

    with pytest.raises(SpecInvalid) as refused:
        parse_spec({**anywhere, **raw})

    assert field in [problem.field for problem in refused.value.problems]
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("actor-rollout-ref_train_step3_rank1-of-4_pid77_20260101120000000.json.gz", ("policy", 1, 3)),
        ("actor-rollout-ref_actor-update_step3_rank2-of-4_tp0-dp2_pid77_2026_mb0-1.json.gz", ("policy", 2, 3)),
        ("actor-rollout-ref_ref-compute-log-prob_step3_rank1-of-4_pid77_2026.json.gz", ("reference", 1, 3)),
        ("value-model_train_step12_rank0-of-2_pid9_2026.json.gz", ("critic", 0, 12)),
        ("language-model_rank0-of-1_pid9_2026.json.gz", ("policy", 0, 0)),
        ("agent_loop_rollout_replica_2/host_7.pt.trace.json.gz", ("vllm", 2, 0)),
        ("rollout-replica1-globalrank3_x-rank-1.json.gz", ("vllm", 3, 0)),
        ("step4/torch_memory_rank1_pid7.pickle", ("policy", 1, 4)),
        ("value_model_host-7_worker_process_77.1.nsys-rep", ("critic", 0, 0)),
    ],
)
def test_the_files_of_its_profiler_say_whose_they_are(tmp_path: Path, name: str, told: tuple[str, int, int]) -> None:
    path = tmp_path / "profile" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"12345")
    (tmp_path / "profile" / "notes.txt").write_text("no recording")

    (found,) = adapter("verl").captures.files(run_dir=tmp_path)

    assert (found.path, found.size) == (path, 5)
    assert (found.role, found.rank, found.step) == told


@pytest.mark.parametrize(
    ("trainer", "algorithm", "ready", "is_under"),
    [
        ("openrlhf", "sft", "auto", True),
        ("trl", "grpo", "auto", True),
        ("verl", "sft", "auto", True),
        ("verl", "grpo", "auto", False),  # its own profiler starts nsys
        ("native", "sft", "auto", False),  # Ray's workers, each under its own
    ],
)
def test_nsys_is_for_what_the_runner_starts_itself(trainer: str, algorithm: str, ready: str, is_under: bool) -> None:
    source = {"kind": "bundled"} if trainer == "native" else {"kind": "path", "id": "/m/rows.parquet"}
    profile = {"what": "timing", "tool": "nsys", "nsys_ready": ready}
    raw = {"trainer": {"name": trainer}, "algorithm": algorithm, "data": source, "profile": profile}

    assert starts_under_nsys(parse_spec(raw)) == is_under
    assert not starts_under_nsys(parse_spec({**raw, "profile": {}}))
