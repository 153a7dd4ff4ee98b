"""One attempt from start to terminal event: real runner and trainer processes, a console with faults."""

import io
import json
import signal
import zipfile
from pathlib import Path

import psutil
import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import TOKEN, FakeConsole

THREE_STEPS = """
for step in (1, 2, 3):
    metric(step)
    print("step", step, flush=True)
log.write(events.state("done", attempt=attempt))
"""


def steps_of(console: FakeConsole) -> list[int]:
    return [event["step"] for event in console.of_kind("metric")]


def assert_gapless(console: FakeConsole) -> None:
    """Numbers 1, 2, 3... are in the database, and no number ever had two contents."""
    assert [number for number, _ in console.database] == list(range(1, len(console.database) + 1))
    assert all(len(set(contents)) == 1 for contents in console.posted.values())


def test_a_run_ships_everything_once_and_in_order_and_ends_with_its_terminal_event(
    house: House, console: FakeConsole
) -> None:
    house.trainer(THREE_STEPS)

    house.finish(house.start())

    assert_gapless(console)
    assert steps_of(console) == [1, 2, 3]
    assert console.lines() == ["step 1", "step 2", "step 3"]
    assert (house.run_dir / "log" / "driver-0.stdout").read_text() == "step 1\nstep 2\nstep 3\n"
    assert console.events[-1] == console.terminal_event
    assert console.terminal_event["state"] == "finished"
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert console.terminal_event["meta"]["device_bytes_left"] == 0
    readings = console.of_kind("system", role="runner")[0]["values"]
    assert readings["memory_total_bytes"] == psutil.virtual_memory().total
    assert 0 < readings["memory_used_bytes"] < readings["memory_total_bytes"]
    assert readings["disk_free_bytes"] > 0
    assert house.marked() == []


SECRET = 'p"ss of/the run+1'
"""Quotes and signs that JSON and addresses write otherwise."""


def everywhere(console: FakeConsole, house: House) -> str:
    """Return all that the console was sent, and what of the run directory the trainer did not write."""
    files = [path for path in house.run_dir.rglob("*") if path.is_file() and path.parent.name != "log"]
    ours = [path.read_text(errors="replace") for path in files if path.name != "events.jsonl"]
    return "".join([json.dumps(console.database), *ours])


def test_a_run_has_its_variables_and_secrets_and_tells_nobody_the_latter(house: House, console: FakeConsole) -> None:
    console.variables = {"NCCL_DEBUG": "INFO", "LD_PRELOAD": "/evil.so"}  # the latter by no console of ours
    console.secrets = {"PLAIN_NAME": SECRET, "LINES": "first line of it\nsecond line of it"}
    house.trainer(
        """
        import base64, urllib.parse
        secret, lines = os.environ["PLAIN_NAME"], os.environ["LINES"]
        assert os.environ["NCCL_DEBUG"] == "INFO" and "LD_PRELOAD" not in os.environ
        print("plain", secret, "json", json.dumps({"key": secret}), "address", urllib.parse.quote(secret, safe=""))
        print("base64", base64.b64encode(secret.encode()).decode(), lines, flush=True)
        log.write(events.note(f"signed in with {secret}", attempt=attempt))
        raise RuntimeError(f"refused: {secret}")
        """
    )

    house.finish(house.start())

    shipped = everywhere(console, house)
    with zipfile.ZipFile(io.BytesIO(bytes(console.files["logs.zip"]))) as logs:
        assert logs.testzip() is None
        shipped += "".join(logs.read(name).decode() for name in logs.namelist())
    assert [form for form in ("ss of/the", "p%22ss", "cCJzcyBv", "first line", "second line") if form in shipped] == []
    assert "plain *** json" in console.lines()[0]
    launch = json.loads((house.run_dir / "launch.json").read_text())
    assert (launch["variables"], launch["secrets"]) == ({"NCCL_DEBUG": "INFO"}, ["LINES", "PLAIN_NAME"])
    assert (house.run_dir / ".key").stat().st_mode & 0o777 == 0o600
    surroundings = console.of_kind("note", role="runner")[0]["meta"]["environment"]
    assert (surroundings["variables"], surroundings["secrets"]) == (launch["variables"], launch["secrets"])


def test_a_run_whose_secrets_another_runner_has_fails_and_says_so(house: House, console: FakeConsole) -> None:
    console.secrets, console.handed_to = {"WANDB_API_KEY": SECRET}, "somebody else's"
    house.trainer("raise SystemExit('started without its secrets')")

    house.finish(house.start())

    assert console.terminal_event["state"] == "failed"
    assert "handed to another runner" in console.terminal_event["cause"]["text"]
    assert not (house.run_dir / "launch.json").exists()


def test_what_is_written_down_for_people_holds_no_secret(house: House, console: FakeConsole) -> None:
    house.trainer("assert 'PITWALL_TOKEN' not in os.environ\n")

    house.finish(house.start())

    launch = json.loads((house.run_dir / "launch.json").read_text())
    assert launch["argv"][1:] == ["-m", "jobs.engine", str(house.run_dir), "--device", "cpu"]
    for path in house.run_dir.rglob("*"):
        if path.is_file():
            assert TOKEN not in path.read_text(errors="replace"), path


def test_a_console_that_is_away_during_the_whole_run_gets_all_of_it_afterwards(
    house: House, console: FakeConsole
) -> None:
    house.trainer("metric(1)\nwait_until(lambda: (run_dir / 'go').exists())\nfor i in range(2, 5000): metric(i)\n")
    runner = house.start()
    console.wait_for(lambda: steps_of(console) == [1])

    console.stop()
    trainer = psutil.Process(runner.pid).children()[0]
    (house.run_dir / "go").touch()
    assert psutil.wait_procs([trainer], timeout=120)[1] == []
    console.start()
    house.finish(runner)

    assert_gapless(console)
    assert steps_of(console) == list(range(1, 5000))
    assert console.terminal_event["state"] == "finished"


@pytest.mark.parametrize("status", [500, 503, 507])
def test_a_console_in_trouble_is_asked_again(house: House, console: FakeConsole, status: int) -> None:
    house.trainer("metric(1)\nwait_until(lambda: (run_dir / 'go').exists())\nmetric(2)\n")
    runner = house.start()
    console.wait_for(lambda: steps_of(console) == [1])

    with console.condition:
        console.fail_with = status
    (house.run_dir / "go").touch()
    console.wait_for(lambda: console.num_failed)
    with console.condition:
        console.fail_with = 0
    house.finish(runner)

    assert_gapless(console)
    assert steps_of(console) == [1, 2]


def test_a_lost_redis_is_filled_again_from_the_files(house: House, console: FakeConsole) -> None:
    console.is_ingesting = False  # nothing becomes durable
    house.trainer(
        """
        for step in range(1, 30):
            metric(step)
            wait_until(lambda: (run_dir / "cuts.jsonl").read_text().count("\\n") > min(step, 8))
        """
    )
    runner = house.start()
    console.wait_for(lambda: console.expect > 6)

    console.lose_redis()
    console.wait_for(lambda: console.expect > 6)
    console.lose_redis()
    with console.condition:
        console.is_ingesting = True
    house.finish(runner)

    assert max(len(contents) for contents in console.posted.values()) >= 2  # it did send them again
    assert_gapless(console)
    assert steps_of(console) == list(range(1, 30))


def test_a_lost_stream_is_noticed_while_the_trainer_never_pauses(house: House, console: FakeConsole) -> None:
    console.is_ingesting = False
    house.trainer(
        """
        step = 0
        while not (run_dir / "go").exists():
            step += 1
            metric(step)
            time.sleep(0.01)
        """
    )
    runner = house.start()
    console.wait_for(lambda: console.expect > 4)

    console.lose_stream()
    with console.condition:
        console.is_ingesting = True
    console.wait_for(lambda: console.durable > 6)
    (house.run_dir / "go").touch()
    house.finish(runner)

    assert_gapless(console)
    assert steps_of(console) == list(range(1, len(steps_of(console)) + 1))


def test_answers_lost_on_the_way_double_nothing(house: House, console: FakeConsole) -> None:
    console.lose_answers = 3
    house.trainer("for step in range(1, 6): metric(step)\n")

    house.finish(house.start())

    assert console.lose_answers == 0
    assert_gapless(console)
    assert steps_of(console) == [1, 2, 3, 4, 5]


def test_an_event_that_the_console_can_never_take_does_not_hold_up_the_others(
    house: House, console: FakeConsole
) -> None:
    console.refuse = lambda event: event["kind"] == "metric" and event["step"] == 2
    house.trainer(THREE_STEPS)

    house.finish(house.start())

    assert [number for number, _ in console.database] == list(range(1, len(console.database) + 1))
    assert steps_of(console) == [1, 3]
    assert any("is wrong" in event["text"] for event in console.of_kind("note"))
    assert console.terminal_event["state"] == "finished"


def test_a_killed_runner_takes_its_trainer_along_and_a_new_one_goes_on_without_renumbering(
    house: House, console: FakeConsole
) -> None:
    house.trainer("for step in range(1, 4): metric(step)\nprint('before', flush=True)\ntime.sleep(600)\n")
    runner = house.start()
    console.wait_for(lambda: steps_of(console) == [1, 2, 3] and console.lines())
    trainer = psutil.Process(runner.pid).children()[0]

    runner.kill()
    runner.wait()
    psutil.wait_procs([trainer], timeout=10)
    with (house.run_dir / "events.jsonl").open("a") as log:  # shipped by nobody, then a torn line
        log.write(
            '{"kind":"metric","attempt":1,"step":4,"role":"driver","rank":0,"t":4,"values":{"loss":1}}\n{"kind":"met'
        )
    house.finish(house.start())

    assert not trainer.is_running()
    assert_gapless(console)
    assert steps_of(console) == [1, 2, 3, 4]
    assert console.lines() == ["before"]
    word = console.terminal_event
    assert (word["state"], word["cause"]["side"]) == ("failed", "cluster")
    assert "the runner was killed" in word["cause"]["text"]


def test_a_fenced_runner_stops_its_trainer_and_ships_nothing_more(house: House, console: FakeConsole) -> None:
    house.trainer("metric(1)\ntime.sleep(600)\n")
    runner = house.start()
    console.wait_for(lambda: steps_of(console) == [1])
    trainer = psutil.Process(runner.pid).children()[0]

    with console.condition:
        console.is_fenced = True
    said = house.finish(runner, code=3)

    assert "may not report any more" in said
    assert not trainer.is_running()
    assert console.of_kind("state", role="runner") == []
    assert console.ready == set()


def test_a_stop_command_reaches_the_trainer_once_and_its_checkpoint_is_waited_for(
    house: House, console: FakeConsole
) -> None:
    house.trainer(
        """
        metric(1)
        wait_until(commands)
        metric(2)
        assert [c["verb"] for c in commands()] == ["stop"], commands()
        sys.exit(10)
        """
    )
    runner = house.start()
    console.wait_for(lambda: steps_of(console) == [1])
    with console.condition:
        console.lose_answers = 1  # the command comes again
        console.commands = [{"number": 7, "verb": "stop", "payload": {}}, {"number": 8, "verb": "dance", "payload": {}}]

    house.finish(runner)

    assert {"number": 7, "answer": {"accepted": True}} in console.answered
    assert {"number": 8, "answer": {"error": "unknown verb"}} in console.answered
    assert len((house.run_dir / "commands.jsonl").read_text().splitlines()) == 1
    assert console.terminal_event["state"] == "stopped"
    assert console.terminal_event["cause"]["side"] == "user"
    assert "step 2" in console.terminal_event["cause"]["text"]


def test_a_stubborn_trainer_is_ended_by_sigterm_when_the_cluster_ends_the_job(
    house: House, console: FakeConsole
) -> None:
    house.trainer(
        """
        signal.signal(signal.SIGTERM, lambda *_: (print('saving', flush=True), sys.exit(10)))
        metric(1)
        time.sleep(600)
        """
    )
    runner = house.start(PITWALL_STOP_GRACE_SECONDS="0.2")
    console.wait_for(lambda: steps_of(console) == [1])

    runner.send_signal(signal.SIGTERM)
    house.finish(runner)

    assert console.lines() == ["saving"]
    assert console.terminal_event["state"] == "stopped"


def test_a_trainer_that_ignores_everything_is_killed(house: House, console: FakeConsole) -> None:
    house.trainer("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nmetric(1)\ntime.sleep(600)\n")
    runner = house.start(PITWALL_STOP_GRACE_SECONDS="0.2", PITWALL_TERM_GRACE_SECONDS="0.2")
    console.wait_for(lambda: steps_of(console) == [1])

    with console.condition:
        console.commands = [{"number": 1, "verb": "stop", "payload": {}}]
    house.finish(runner)

    assert console.terminal_event["state"] == "stopped"
    assert "its processes were ended" in console.terminal_event["cause"]["text"]
    assert console.terminal_event["meta"]["processes_left"] == 0


def test_an_orphan_that_left_its_session_is_found_and_ended(house: House, console: FakeConsole) -> None:
    house.trainer(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                (run_dir / "orphan").write_text(str(os.getpid()))
                time.sleep(600)
            os._exit(0)
        wait_until(lambda: (run_dir / "orphan").exists() and (run_dir / "orphan").read_text())
        metric(1)
        """
    )

    house.finish(house.start(PITWALL_LEAVE_SECONDS="0.2"))

    pid = int((house.run_dir / "orphan").read_text())
    assert not psutil.pid_exists(pid)
    assert any(str(pid) in line for line in console.terminal_event["meta"]["ended"])
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert console.terminal_event["state"] == "finished"


def test_models_and_logs_are_handed_over_before_the_terminal_event(house: House, console: FakeConsole) -> None:
    house.trainer(
        """
        folder = run_dir / "model" / "final"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(range(256)) * 40_000)  # 10 MB: two chunks
        (run_dir / "tb").mkdir()
        (run_dir / "tb" / "events").write_text("x")
        log.write(
            events.artifact("model-final", artifact="model", path="model/final", attempt=1, step=3, meta={"a": 1}),
            events.artifact("step-3", artifact="checkpoint", path="checkpoints/3", attempt=attempt, step=3),
        )
        print("bye", flush=True)
        """
    )

    house.finish(house.start())

    assert console.ready == {"model-final.zip", "tensorboard.zip", "logs.zip"}
    about = console.about["model-final.zip"]
    assert (about["type"], about["step"], about["path"], json.loads(about["meta"])) == (
        "model",
        "3",
        "model/final",
        {"a": 1},
    )
    assert next(size for name, _, size in console.puts if name == "model-final.zip") == 8 << 20
    with zipfile.ZipFile(io.BytesIO(console.files["model-final.zip"])) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["config.json", "model.safetensors", "pitwall_spec.json"]
        assert archive.read("model.safetensors") == bytes(range(256)) * 40_000
    with zipfile.ZipFile(io.BytesIO(console.files["logs.zip"])) as archive:
        assert archive.read("driver-0.stdout") == b"bye\n"


def test_uploaded_inputs_are_fetched_and_checked(house: House, console: FakeConsole) -> None:
    import hashlib

    content = b'{"prompt": "1+1", "answer": "2"}\n'
    digest = hashlib.sha256(content).hexdigest()
    console.inputs[digest] = content
    house.trainer("metric(1, size=float(sum(p.stat().st_size for p in (run_dir / 'inputs').iterdir())))\n")

    house.finish(house.start())

    assert console.of_kind("metric")[0]["values"] == {"size": float(len(content))}


def test_a_damaged_input_fails_the_run_with_its_name(house: House, console: FakeConsole) -> None:
    console.inputs["0" * 64] = b"not what was uploaded"
    house.trainer("metric(1)\n")

    house.finish(house.start())

    assert console.terminal_event["state"] == "failed"
    assert console.terminal_event["cause"]["side"] == "pitwall"
    assert "data.jsonl arrived damaged" in console.terminal_event["cause"]["text"]
    assert steps_of(console) == []


def test_a_spec_that_this_runner_cannot_read_fails_with_its_problem(house: House, console: FakeConsole) -> None:
    console.spec = {"algorithm": "dance"}
    house.trainer("metric(1)\n")

    house.finish(house.start())

    assert console.terminal_event["state"] == "failed"
    assert "'dance' is not allowed" in console.terminal_event["cause"]["text"]


def test_a_full_disk_is_named_and_the_terminal_event_still_arrives(
    house: House, console: FakeConsole, tiny_disk: Path
) -> None:
    house.run_root = tiny_disk
    house.trainer(
        """
        metric(1)
        with (run_dir / 'ballast').open('wb') as file:
            while os.write(file.fileno(), bytes(1 << 16)) == 1 << 16:
                pass
        raise OSError(28, 'No space left on device')
        """
    )

    house.finish(house.start())

    assert steps_of(console) == [1]
    assert console.terminal_event["state"] == "failed"
    assert "the trainer found the disk full in step 2" in console.terminal_event["cause"]["text"]
    assert_gapless(console)


def test_an_environment_without_orders_is_refused_in_a_sentence(house: House) -> None:
    said = house.finish(house.start(PITWALL_RUN=""), code=1)

    assert said.startswith("PITWALL_RUN not set.")
