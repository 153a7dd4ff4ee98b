"""Exit causes of logs as trainers and Ray write them: what frames an error is not taken for it."""

from pathlib import Path

import pytest

from jobs.runner.failures.cause import exit_cause_of
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.trainer import Exit
from tests.jobs.catalog.test_log_line import OF_PROFILER

RAY = "\x1b[36m(WorkerDict pid=801705)\x1b[0m "
CREATION = f"""{RAY}Exception raised in creation task: The actor died because of an error raised in its creation task, \
ray::WorkerDict.__init__() (pid=801705, ip=172.17.0.2)
{RAY}  File "verl/workers/fsdp_workers.py", line 177, in __init__
{RAY}AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization
Traceback (most recent call last):
ray.exceptions.RayTaskError(ActorDiedError): ray::TaskRunner.run() (pid=799623, ip=172.17.0.2)
ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::WorkerDict

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
DEAD_RANKS = "".join(
    f"[{rank}]:\n  time      : 2026-05-20_06:32:08\n  host      : gpu-1\n  rank      : {rank} (local_rank: {rank})\n"
    f"  exitcode  : -6 (pid: {rank})  (SIGABRT)\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received\n"
    for rank in range(16)
)
WATCHDOG = f"""[rank0]:[E520 06:31:05.050 NCCL.cpp:757] [Rank 0] Watchdog caught collective operation timeout
{"frame #1: c10d::ProcessGroupNCCL::Watchdog::run() + 0x2b1" + chr(10)}{"=" * 60}
{DEAD_RANKS}{"=" * 60}
"""
ALLOCATIONS = "".join(
    f"  {n}. Size: 126.00M\n     Shape: f32[56,768,768]{{2,1,0}}\n     Allocation type: HLO temp\n     {'=' * 26}\n\n"
    for n in range(1, 21)
)
ENGINE = "(EngineCore pid=6890) "
SERVER = "(APIServer pid=6787) "
CALLS = "".join(
    f'{SERVER}  File "/env/vllm/v1/engine/core_client.py", line {n}, in __init__\n{SERVER}    super().__init__(\n'
    f"{SERVER}    ^^^^^^^^^^^^^^^^^\n"
    for n in range(60)
)
NO_ROOM = f"""{ENGINE}ValueError: To serve at least one request with the model's max seq len (262144), (18.35 GiB KV \
cache is needed, which is larger than the available KV cache memory (9.1 GiB).
{SERVER}Traceback (most recent call last):
{CALLS}{SERVER}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
ANY_START = NO_ROOM.replace("ValueError: To serve at least one request", "ValueError: No such quantization for")
SIGNAL = f"""*** SIGTERM received at time=1773096501 on cpu 95 ***
PC: @     0x7fd1b9881d71  (unknown)  (unknown)
{"    @           0x5d571b        128  PyEval_EvalCode" + chr(10)}
train.sh: line 115: 455425 Aborted                 (core dumped) python3 -m verl.trainer.main_ppo
"""
HANGUP = """Traceback (most recent call last):
  File "/env/torch/distributed/elastic/multiprocessing/api.py", line 84, in _terminate_process_handler
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 12152 got signal: 1
"""
KILLED_RANK = """E0121 11:11:11.551000 1344 torch/distributed/elastic/multiprocessing/api.py:826] \
failed (exitcode: -9) local_rank: 0 (pid: 1322) of binary: /env/bin/python
Traceback (most recent call last):
  File "/env/torch/distributed/launcher/api.py", line 263, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
=======================================================
finetune.py FAILED
-------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : -9 (pid: 1322)
  traceback : Signal 9 (SIGKILL) received by PID 1322
=======================================================
"""
LOST = "[rank1]:[E1224 13:23:05.483 ProcessGroupNCCL.cpp:542] NCCL error: remote process exited or network error\n"
OF_DEEPSPEED = """[2023-07-10 04:26:05,876] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 94985
[2023-07-10 04:26:35,999] [ERROR] [launch.py:324:sigkill_handler] ['python', 'a.py'] exits with return code = -11
"""
REPORT = (
    "\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error. To "
    "troubleshoot the problem, check the logs for the dead worker. RayTask ID: c3f4 Worker PID: 1633485 Worker exit "
    "type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.\n"
)
ASSERT = """ray.exceptions.RayTaskError(RuntimeError): ray::WorkerDict.actor_rollout_compute_log_prob() (pid=2345)
RuntimeError: CUDA error: device-side assert triggered
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


@pytest.mark.parametrize(
    ("log", "side", "text"),
    [
        (HANGUP, "cluster", "was ended from outside before the first step was done (SIGHUP)"),
        (
            HANGUP.replace("signal: 1", "signal: 15"),
            "cluster",
            "was ended from outside before the first step was done (SIGTERM)",
        ),
        (KILLED_RANK, "cluster", "the trainer was killed before the first step was done (SIGKILL)"),
        (LOST + KILLED_RANK, "cluster", "the trainer was killed before the first step was done (SIGKILL)"),
        (LOST + KILLED_RANK.replace("-9", "-6"), "cluster", "lost its NCCL connection to another rank"),
        (f"ValueError: no\n{KILLED_RANK.replace('-9', '1')}", "trainer", "ValueError: no"),
        (OF_DEEPSPEED, "trainer", "the trainer crashed in native code before the first step was done (SIGSEGV)"),
        (REPORT, "cluster", "lost a worker process before the first step was done"),
        (REPORT + "Traceback (most recent call last):\nKeyError: 'raw_prompt'\n", "trainer", "KeyError: 'raw_prompt'"),
        (ASSERT, "trainer", "gave a kernel of the device before the first step was done an index that it refuses"),
        (CREATION, "trainer", "AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization"),
        (WATCHDOG, "cluster", "lost its NCCL connection to another rank"),
        (
            "RuntimeError: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 100.38G",
            "trainer",
            "ran out of device memory",
        ),
        (
            f"RuntimeError: Ran out of memory in memory space hbm.\n\n{ALLOCATIONS}",
            "trainer",
            "ran out of device memory",
        ),
        (NO_ROOM, "user", "no room in device memory for the KV cache"),
        (ANY_START, "trainer", "ValueError: No such quantization for"),
        (SIGNAL, "cluster", "was ended from outside before the first step was done (SIGTERM)"),
        (f"{SIGNAL}KeyError: 'answer'\n", "trainer", "KeyError: 'answer'"),
        (
            "\n".join(["step 3 of 10", *OF_PROFILER]),
            "trainer",
            "ended with exit code 1 before the first step was done: step 3",
        ),
        ("KeyError: 'answer'\nINFO:     Application shutdown complete.\n", "trainer", "KeyError: 'answer'"),
    ],
)
def test_the_error_itself_is_the_cause(tmp_path: Path, log: str, side: str, text: str) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "driver-0.stdout").write_text(log, encoding="utf-8")

    cause = exit_cause_of(
        ended=Exit(code=1),
        progress=TrainerProgress(path=tmp_path / "events.jsonl"),
        run_dir=tmp_path,
        oom_kills=0,
        disk_free_bytes=10**12,
    )

    assert cause["side"] == side
    assert text in str(cause["text"])
