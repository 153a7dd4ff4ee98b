"""Causes: who failed, where, in a sentence."""

from pathlib import Path
from typing import Literal

import pytest

from jobs.engine.failures.failure_cause import SyncGap, cause_of
from jobs.engine.problem import CheckpointLost, RunProblem
from jobs.engine.rollouts.reward import RewardFailed
from jobs.engine.workers.actor import Actor, OutputRedirect, RoleError
from jobs.engine.workers.worker import WorkerFailed


def failed(
    text: str, *, role: str = "policy", how: Literal["raised", "died", "lost"] = "raised", phase: str = ""
) -> WorkerFailed:
    return WorkerFailed(role=role, rank=1, step=7, text=text, how=how, phase=phase)


def test_what_a_person_can_put_right_is_theirs() -> None:
    cause = cause_of(RunProblem("data.id", "There is no file 'a'."), step=0, log_tail={})

    assert (cause["side"], cause["field"], cause["text"]) == ("user", "data.id", "There is no file 'a'.")


def test_a_checkpoint_that_cannot_be_read_is_the_clusters() -> None:
    cause = cause_of(CheckpointLost("Checkpoint 40 of attempt 1 is not whole."), step=40, log_tail={})

    assert (cause["side"], cause["field"]) == ("cluster", "resume")  # by both the console knows that it is lost


def test_a_reward_failure_names_the_reward() -> None:
    cause = cause_of(RewardFailed("mine.py line 3 raised", kind="raised", log_line="line"), step=4, log_tail={})

    assert (cause["side"], cause["role"], cause["step"], cause["log_line"]) == ("user", "reward", 4, "line")


def test_a_role_that_raised_is_named_with_its_last_log_line() -> None:
    cause = cause_of(failed("ValueError: bad"), step=9, log_tail={("policy", 1): "ValueError: bad"})

    assert (cause["side"], cause["role"], cause["rank"], cause["step"]) == ("trainer", "policy", 1, 7)
    assert cause["text"] == "policy rank 1 raised at step 7: ValueError: bad"


def test_a_process_that_died_is_the_clusters() -> None:
    cause = cause_of(failed("Worker exit: SIGKILL", how="died"), step=9, log_tail={})

    assert cause["side"] == "cluster"
    assert "policy rank 1 died at step 7" in cause["text"]


def test_the_phase_in_which_a_worker_was_missed_is_named() -> None:
    cause = cause_of(failed("Worker exit: SIGKILL", how="died", phase="old_logprobs"), step=9, log_tail={})

    assert cause["text"] == "The process of policy rank 1 died at step 7 (old log-probs): Worker exit: SIGKILL"


@pytest.mark.parametrize(
    ("text", "how", "says"),
    [
        ("The object is lost", "lost", "The answer of policy rank 1 at step 7 was lost"),
        (
            "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.5]:4411",
            "raised",
            "policy rank 1 lost its connection to another rank at step 7",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:2006, remote process exited: ncclRemoteError",
            "raised",
            "policy rank 1 lost its connection to another rank at step 7",
        ),
    ],
)
def test_a_worker_that_lost_another_is_the_clusters(text: str, how: Literal["raised", "lost"], says: str) -> None:
    cause = cause_of(failed(text, how=how), step=9, log_tail={})

    assert (cause["side"], cause["role"], cause["rank"]) == ("cluster", "policy", 1)
    assert cause["text"].startswith(says)


@pytest.mark.parametrize(
    ("role", "text", "knob"),
    [
        ("policy", "CUDA out of memory. Tried to allocate", "train.micro_batch_size"),
        ("vllm", "torch.OutOfMemoryError", "rollout.max_num_seqs"),
        ("policy", "RuntimeError: DefaultCPUAllocator: can't allocate memory", "train.micro_batch_size"),
    ],
)
def test_out_of_memory_is_recognized_and_names_a_knob(role: str, text: str, knob: str) -> None:
    cause = cause_of(failed(text, role=role), step=1, log_tail={})

    assert "ran out of memory" in cause["text"]
    assert knob in cause["text"]


def test_a_full_disk_is_recognized_on_driver_and_ranks() -> None:
    for error in (OSError(28, "No space left on device", "events.jsonl"), failed("OSError: No space left on device")):
        cause = cause_of(error, step=3, log_tail={})
        assert cause["side"] == "cluster"
        assert cause["text"].startswith("The disk is full")


def test_a_weight_sync_that_did_not_arrive_is_the_trainers() -> None:
    assert cause_of(SyncGap("differ by 0.1"), step=3, log_tail={})["role"] == "vllm"


def test_a_node_that_takes_no_files_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the run root should be")
    actor = object.__new__(Actor)
    actor._capture = OutputRedirect(tmp_path / "runs" / "r-1" / "a1" / "log", "policy", 1)
    with pytest.raises(RoleError) as refused:
        actor.start("jobs.engine.roles.policy:Policy", {})

    cause = cause_of(failed(str(refused.value)), step=0, log_tail={})

    assert cause["side"] == "cluster"
    assert f"does not take files in {tmp_path}/runs/r-1/a1 (Not a directory)" in cause["text"]
    assert "Set PITWALL_RUN_ROOT" in cause["text"]
