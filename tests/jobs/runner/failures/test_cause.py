"""The exit cause of real processes that really die that way."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.runner.failures.cause import exit_cause_of
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.trainer import Exit
from profiling import events
from tests.jobs.catalog.test_log_line import BEFORE
from tests.journeys.environments import make_environment


def die(
    run_dir: Path,
    body: str,
    *,
    oom_kills: int = 0,
    free: int = 1 << 40,
    own: list[events.Event] | None = None,
    python: str = sys.executable,
) -> dict[str, Any]:
    """Run `body` as a trainer's driver and return the cause that the runner finds."""
    (run_dir / "log").mkdir()
    log = events.EventLog(run_dir / "events.jsonl")
    log.write(events.metric({"loss": 1.0}, attempt=1, step=11), *(own or []))
    log.close()
    with (
        (run_dir / "log" / "driver-0.stderr").open("wb") as err,
        (run_dir / "log" / "driver-0.stdout").open("wb") as out,
    ):
        code = subprocess.run([python, "-c", body], stdout=out, stderr=err, check=False).returncode
    progress = TrainerProgress(path=run_dir / "events.jsonl")
    progress.read()
    return exit_cause_of(
        ended=Exit(code=code), progress=progress, run_dir=run_dir, oom_kills=oom_kills, disk_free_bytes=free
    )


EXITS = [
    (
        "raise ValueError('the reward has shape [3], not [4]')",
        "trainer",
        "exit code 1 in step 12: ValueError: the reward has",
    ),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "cluster", "was killed in step 12 (SIGKILL)"),
    (
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "cluster",
        "was ended from outside in step 12 (SIGTERM)",
    ),
    ("import ctypes; ctypes.string_at(0)", "trainer", "crashed in native code in step 12 (SIGSEGV)"),
    ("import os; os.abort()", "trainer", "aborted by native code in step 12 (SIGABRT)"),
    (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); bytearray(1 << 32)",
        "trainer",
        "ran out of host memory in step 12",
    ),
    (
        "import resource, signal, tempfile; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); f = tempfile.TemporaryFile(buffering=0)\n"
        "while True: f.write(b'x' * 4096)",
        "cluster",
        "found the disk full in step 12",
    ),
    ("open('/dev/full', 'w').write('x' * 10000)", "cluster", "found the disk full in step 12"),
    ("import no_such_module_here", "cluster", "needs the Python module no_such_module_here"),
    (
        "import socket; a = socket.create_server(('127.0.0.1', 0)); socket.create_server(a.getsockname())",
        "cluster",
        "wanted a network port that is taken",
    ),
    ("import sys; sys.exit('config.json is missing')", "trainer", "exit code 1 in step 12: config.json is missing"),
]


@pytest.mark.parametrize(("body", "side", "text"), EXITS)
def test_a_dead_driver_is_explained(tmp_path: Path, body: str, side: str, text: str) -> None:
    cause = die(tmp_path, body)

    assert cause["side"] == side
    assert text in cause["text"]
    assert (cause["role"], cause["rank"], cause["step"]) == ("driver", 0, 11)


@pytest.mark.proof
def test_data_that_are_not_there_are_named_by_the_library_that_other_trainers_read_them_with(tmp_path: Path) -> None:
    body = "import datasets; datasets.load_dataset('json', data_files='/no/such.jsonl')"

    cause = die(tmp_path, body, python=make_environment("openrlhf"))

    assert (cause["side"], cause["role"]) == ("user", "driver")
    assert "could not read the model or the data: Unable to find '/no/such.jsonl'" in cause["text"]


WORKERS = [
    ("policy", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "ran out of device memory"),
    (
        "vllm",
        0,
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory",
        "killed by Ray",
    ),
    (
        "policy",
        0,
        "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
        "lost its NCCL connection",
    ),
    (
        "policy",
        1,
        "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer",
        "lost its gloo connection",
    ),
    ("policy", 1, "OSError: [Errno 28] No space left on device: 'checkpoints/11'", "found the disk full"),
    (
        "policy",
        1,
        "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 1715712 vs 1715604",
        "found the disk full",
    ),
]


@pytest.mark.parametrize(("role", "rank", "line", "text"), WORKERS)
def test_a_worker_that_died_is_named_by_role_and_rank(
    tmp_path: Path, role: str, rank: int, line: str, text: str
) -> None:
    said = events.log(["Traceback (most recent call last):", line], attempt=1, role=role, rank=rank, stream="stderr")

    cause = die(tmp_path, "raise RuntimeError('ActorDiedError: the actor died unexpectedly')", own=[said])

    assert (cause["role"], cause["rank"]) == (role, rank)
    assert cause["text"].startswith(f"{role} rank {rank} ")
    assert text in cause["text"]
    assert cause["log_line"] == line


RAY_SAYS = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: {name}
\tactor_id: a48d1186f4d71f1f9068c44d01000000
\tpid: 16451
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"""


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("PolicyModelActor", "policy"),
        ("ReferenceModelActor", "reference"),
        ("CriticModelActor", "critic"),
        ("LLMRayActor", "vllm"),
        ("create_colocated_worker_cls.<locals>.WorkerDict", "policy"),
    ],
)
def test_an_actor_of_which_ray_tells_only_in_the_drivers_log_is_named(tmp_path: Path, name: str, role: str) -> None:
    cause = die(tmp_path, f"import sys; sys.exit({RAY_SAYS.format(name=name)!r})")

    assert (cause["side"], cause["role"]) == ("cluster", role)
    assert cause["text"] == f"a process of {name.rpartition('.')[2]} died in step 12: Ray says so"
    assert cause["log_line"].startswith("ray.exceptions.ActorDiedError: The actor died unexpectedly")


def test_what_ray_prefixes_in_the_drivers_log_is_the_workers(tmp_path: Path) -> None:
    cause = die(tmp_path, "import sys; sys.exit('(PolicyActor pid=123, ip=10.0.0.1) CUDA out of memory.')")

    assert cause["role"] == "policy"
    assert cause["log_line"] == "CUDA out of memory."


def test_what_was_survived_long_before_is_not_the_cause(tmp_path: Path) -> None:
    body = "import sys\nprint('OSError: Address already in use, trying the next port', file=sys.stderr)\n"
    body += "for i in range(200): print('step', i, file=sys.stderr)\nraise ValueError('no such column')"

    assert "exit code 1 in step 12: ValueError: no such column" in die(tmp_path, body)["text"]


def test_a_kill_while_the_kernel_ran_out_of_memory_is_called_that(tmp_path: Path) -> None:
    cause = die(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", oom_kills=1)

    assert "because the node ran out of memory" in cause["text"]
    assert cause["side"] == "cluster"


def test_a_disk_so_full_that_not_even_a_traceback_fits_is_still_named(tmp_path: Path) -> None:
    cause = die(tmp_path, "import os; os._exit(1)", free=4096)

    assert cause["side"] == "cluster"
    assert "found the disk full in step 12" in cause["text"]


def test_what_the_trainer_says_of_itself_is_trusted_and_completed(tmp_path: Path) -> None:
    own = {"side": "user", "role": "reward", "rank": 0, "text": "The reward file raised KeyError: 'x'."}

    cause = die(tmp_path, "import sys; sys.exit(1)", own=[events.state("failed", attempt=1, step=11, cause=own)])

    assert cause == {**own, "step": 11, "log_line": "", "exit_code": 1}


def test_a_death_before_the_first_step_says_so(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()

    cause = exit_cause_of(
        ended=Exit(code=1),
        progress=TrainerProgress(path=tmp_path / "events.jsonl"),
        run_dir=tmp_path,
        oom_kills=0,
        disk_free_bytes=1 << 40,
    )

    assert cause["text"] == "the trainer ended with exit code 1 before the first step was done"


def test_an_exception_of_a_rank_of_torch_is_named_without_its_prefix(tmp_path: Path) -> None:
    cause = die(
        tmp_path,
        "import torch.distributed as d; d.init_process_group(store=d.HashStore(), world_size=1, rank=0, "
        "backend='gloo'); raise KeyError('CPU')",
    )

    assert cause["text"] == "policy rank 0 ended with exit code 1 in step 12: KeyError: 'CPU'"
    assert (cause["role"], cause["rank"], cause["log_line"]) == ("policy", 0, "KeyError: 'CPU'")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("MemoryError", "ran out of host memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 16.0 GiB", "ran out of host memory"),
        ("ray.exceptions.RayTaskError(MemoryError): ray::PolicyActor.fit()", "ran out of host memory"),
        ("train_sft.py: error: unrecognized arguments: --x", "does not take its command line: unrecognized"),
        ("OSError: Incorrect path_or_model_id: '/no/model'", "could not read the model or the data: Incorrect path"),
    ],
)
def test_a_cause_is_known_with_whatever_stands_before_it(tmp_path: Path, before: str, line: str, text: str) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "driver-0.stderr").write_text(f"Traceback (most recent call last):\n{before}{line}\n")

    cause = exit_cause_of(
        ended=Exit(code=1),
        progress=TrainerProgress(path=tmp_path / "events.jsonl"),
        run_dir=tmp_path,
        oom_kills=0,
        disk_free_bytes=1 << 40,
    )

    assert text in cause["text"]
    assert "\x1b" not in cause["log_line"]
