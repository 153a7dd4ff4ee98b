"""What the embedded console refuses before it starts anything, and how its services are told to start."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.embedded import redis_server, services, warm_workers
from console.embedded.data_dir import (
    MAX_SOCKET_PATH_BYTES,
    RAY_SOCKET_SUFFIX,
    AlreadyRunning,
    DataDirLock,
    TooLittleDisk,
    make_private,
    require_space,
    short_dir,
)
from console.embedded.log_tail import MAX_LOG_BYTES, LogTail
from console.embedded.ports import PortTaken, free_block, is_free, require_free
from console.embedded.services import STOP_ORDER, embedded
from console.embedded.statics import fingerprint, is_current
from jobs.engine.warm import server
from jobs.engine.workers.worker_group import WARM_SOCKET

SECRETS = {"PITWALL_SECRET_KEY": "s3cret", "DATABASE_URL": "sqlite:////tmp/x.sqlite3", "PATH": os.environ["PATH"]}


def test_the_data_directory_is_shut_to_others(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    umask = os.umask(0o022)
    try:
        make_private(directory)
        (directory / "pitwall.sqlite3").touch()
        (directory / "files").mkdir()
    finally:
        os.umask(umask)

    found = [directory, directory / "pitwall.sqlite3", directory / "files"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [0o700, 0o600, 0o700]


@pytest.mark.parametrize("left", ["", "abc"])
def test_a_secret_key_that_was_cut_off_is_named(tmp_path: Path, left: str) -> None:
    (tmp_path / "secret_key").write_text(left)

    said = _read_settings(tmp_path)

    assert f"{tmp_path / 'secret_key'} is empty or cut off." in said.stderr


def test_processes_that_start_at_once_agree_on_one_secret_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(_read_settings, [tmp_path] * 4))

    assert len({done.stdout for done in said}) == 1, said
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["secret_key"]
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def _read_settings(data_dir: Path) -> subprocess.CompletedProcess[str]:
    code = "from console import settings; print(settings.SECRET_KEY)"
    env = {"PATH": os.environ["PATH"], "PITWALL_DATA_DIR": str(data_dir)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_taken_port_is_refused_with_what_to_do(taken_port: int) -> None:
    with pytest.raises(PortTaken, match=rf"Port {taken_port} on 127.0.0.1 is already in use.*PORT={taken_port + 1}"):
        require_free(taken_port)


def test_a_block_of_ports_is_free_and_the_same_again() -> None:
    block = free_block(9, seed="some directory")
    assert len(block) == 9
    assert all(is_free(port) for port in block)
    assert free_block(9, seed="some directory") == block


def test_a_block_with_a_taken_port_is_passed_over() -> None:
    block = free_block(9, seed="another directory")
    with socket.socket() as server:
        server.bind(("127.0.0.1", block[4]))
        server.listen()
        assert not set(free_block(9, seed="another directory")) & set(block)


def test_rays_ports_keep_clear_of_the_web_page(tmp_path: Path) -> None:
    block = free_block(9, seed=str(tmp_path))
    plan = embedded(data_dir=tmp_path, port=block[3], environ=SECRETS)
    ray = next(service for service in plan.services if service.name == "ray")
    assert str(block[3]) not in ray.argv


def test_a_second_start_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path)
    with pytest.raises(
        AlreadyRunning, match=rf"already runs in {tmp_path} \(process {os.getpid()}\).*PITWALL_DATA_DIR"
    ):
        DataDirLock(tmp_path)
    lock.release()
    DataDirLock(tmp_path).release()


def test_a_full_disk_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(TooLittleDisk, match=rf"Only 100 MiB are free on the disk of {tmp_path}"):
        require_space(tmp_path, free_bytes=100 << 20)
    require_space(tmp_path)


def test_a_deep_data_directory_gets_its_sockets_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()

    short = short_dir(deep, "ray", suffix=RAY_SOCKET_SUFFIX)

    assert len(f"{short}{RAY_SOCKET_SUFFIX}") <= MAX_SOCKET_PATH_BYTES
    assert stat.S_IMODE(short.stat().st_mode) == 0o700
    short.chmod(0o777)  # as Ray does
    assert short_dir(deep, "ray", suffix=RAY_SOCKET_SUFFIX) == short
    assert stat.S_IMODE(short.parent.stat().st_mode) == 0o700
    short.rmdir()
    short.parent.rmdir()


def test_every_service_is_started_and_stopped_once(tmp_path: Path) -> None:
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS, demo=())
    names = [service.name for service in plan.services]
    assert sorted(names) == sorted(STOP_ORDER)
    assert plan.stop_order == STOP_ORDER
    assert plan.stop_order[-1] == "redis"


def test_ranks_are_forked_unless_that_is_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_workers, "NVIDIA", tmp_path / "none")
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS)
    environments = {service.name: service.env for service in plan.services}
    (socket,) = (service.argv[-1] for service in plan.services if service.name == "warm")
    assert environments["ray"][warm_workers.SOCKET] == socket
    assert "PITWALL_SECRET_KEY" not in environments["warm"]

    for changes, gpu in (({"PITWALL_WARM_WORKERS": "0"}, False), ({}, True)):
        monkeypatch.setattr(warm_workers, "NVIDIA", tmp_path if gpu else tmp_path / "none")
        plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS | changes)
        environments = {service.name: service.env for service in plan.services}
        assert "warm" not in environments
        assert warm_workers.SOCKET not in environments["ray"]


def test_what_the_engine_reads_is_what_the_console_sets() -> None:
    assert warm_workers.SOCKET == WARM_SOCKET
    assert (warm_workers.ROOM, warm_workers.ROOM_BYTES) == (server.ROOM, server.ROOM_BYTES)
    assert server.__name__ == warm_workers.SERVER


def test_what_the_environment_names_is_not_started(tmp_path: Path) -> None:
    outside = {"REDIS_URL": "redis://10.0.0.5/0", "RAY_ADDRESS": "http://10.0.0.6:8265", "RAY_AUTH_TOKEN": "t"}
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS | outside)
    assert {service.name for service in plan.services} == {"web", "ingest", "worker", "reconcile"}
    assert all(service.env["RAY_ADDRESS"] == "http://10.0.0.6:8265" for service in plan.services)
    assert not any(service.needs for service in plan.services)


def test_environments_that_make_has_made_are_found_and_declared_ones_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("openrlhf-0.11.2", "verl-0.9.1"):
        (tmp_path / ".trainers" / name / "bin").mkdir(parents=True)
        (tmp_path / ".trainers" / name / "bin" / "python").touch()
        (tmp_path / ".trainers" / name / "pitwall.json").touch()
    monkeypatch.setattr(services, "MANAGE", str(tmp_path / "manage.py"))
    declared = SECRETS | {"PITWALL_TRAINERS": "openrlhf=/srv/o/bin/python"}

    here = embedded(data_dir=tmp_path, port=18_050, environ=declared)
    elsewhere = embedded(data_dir=tmp_path, port=18_050, environ=declared | {"RAY_ADDRESS": "http://10.0.0.6:8265"})

    made = f"verl-0.9.1={tmp_path}/.trainers/verl-0.9.1/bin/python"
    assert here.settings["PITWALL_TRAINERS"] == f"openrlhf=/srv/o/bin/python; {made}"
    assert elsewhere.services[-1].env["PITWALL_TRAINERS"] == "openrlhf=/srv/o/bin/python"


def test_a_console_that_others_reach_is_watched_on_this_machine(tmp_path: Path) -> None:
    named = SECRETS | {"PITWALL_PUBLIC_URL": "https://pitwall.example"}
    plan = embedded(data_dir=tmp_path, host="0.0.0.0", port=18_050, environ=named)
    assert plan.url == "https://pitwall.example"
    assert {service.env["PITWALL_HOST"] for service in plan.services} == {"0.0.0.0"}
    assert embedded(data_dir=tmp_path, port=18_050, environ=SECRETS).url == "http://127.0.0.1:18050"


@pytest.mark.parametrize(
    ("ray", "python"), [("", sys.executable), ("http://127.0.0.1:8265", sys.executable), ("http://10.0.0.6:8265", None)]
)
def test_this_interpreter_is_only_named_to_a_ray_on_this_machine(tmp_path: Path, ray: str, python: str | None) -> None:
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS | {"RAY_ADDRESS": ray})
    assert {service.env.get("PITWALL_RUNNER_PYTHON") for service in plan.services} == {python}


@pytest.mark.parametrize(
    ("variables", "run_root", "allowed"),
    [
        ({}, "DATA/runs", "127.0.0.1"),
        ({"RAY_ADDRESS": "http://localhost:8265"}, "DATA/runs", "127.0.0.1"),
        ({"RAY_ADDRESS": "http://10.0.0.6:8265"}, "/tmp/pitwall-runs", "127.0.0.1"),
        ({"PITWALL_PUBLIC_URL": "https://pitwall.example:8443"}, "DATA/runs", "pitwall.example"),
        ({"PITWALL_PUBLIC_URL": "http://[fd00::1]:8000"}, "DATA/runs", "[fd00::1]"),
    ],
)
def test_settings_fit_where_ray_and_browsers_are(
    tmp_path: Path, variables: dict[str, str], run_root: str, allowed: str
) -> None:
    code = "from console import settings; print(settings.RUN_ROOT, settings.ALLOWED_HOSTS[-1])"
    env = {"PATH": os.environ["PATH"], "PITWALL_DATA_DIR": str(tmp_path), **variables}
    said = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
    assert said.split() == [run_root.replace("DATA", str(tmp_path)), allowed]


def test_ray_listens_on_the_loopback_address_behind_a_token(tmp_path: Path) -> None:
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS)
    ray = next(service for service in plan.services if service.name == "ray")
    web = next(service for service in plan.services if service.name == "web")
    assert ray.env["RAY_AUTH_MODE"] == "token"
    assert ray.env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert len(ray.env["RAY_AUTH_TOKEN"]) == 64
    assert ray.env["RAY_AUTH_TOKEN"] == web.env["RAY_AUTH_TOKEN"]
    assert not [argument for argument in ray.argv if ray.env["RAY_AUTH_TOKEN"] in argument]
    assert ray.argv[ray.argv.index("--dashboard-host") + 1] == "127.0.0.1"


def test_ray_itself_leaves_out_the_server_of_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS)
    ray = next(service for service in plan.services if service.name == "ray")
    module, _, name = ray.env["RAY_START_HOOK"].rpartition(".")
    monkeypatch.setenv("RAY_START_HOOK", ray.env["RAY_START_HOOK"])
    parameters = SimpleNamespace(ray_client_server_port=10001)

    getattr(import_module(module), name)(parameters, True)

    assert "--no-monitor" in ray.argv
    assert parameters.ray_client_server_port is None
    assert "RAY_START_HOOK" not in os.environ, "what runs on the cluster must not have it"


def test_what_runs_on_ray_never_sees_the_consoles_secrets(tmp_path: Path) -> None:
    plan = embedded(data_dir=tmp_path, port=18_050, environ=SECRETS)
    ray = next(service for service in plan.services if service.name == "ray")
    assert not {"PITWALL_SECRET_KEY", "DATABASE_URL", "REDIS_URL"} & set(ray.env)


def test_the_servers_program_is_found_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "valkey" in redis_server.find_program()

    def nothing(_name: str) -> object:
        raise ImportError

    monkeypatch.setattr(redis_server.importlib, "import_module", nothing)
    fake = tmp_path / "redis-server"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_server.find_program() == str(fake)

    fake.unlink()
    with pytest.raises(redis_server.NoRedisServer, match="set REDIS_URL"):
        redis_server.find_program()


def test_logs_are_shown_line_by_line_with_the_services_name(tmp_path: Path) -> None:
    shown: list[str] = []
    web, ray = tmp_path / "web.log", tmp_path / "ray.log"
    web.write_text("from an earlier start\n")
    tail = LogTail({"web": web, "ray": ray}, shown.append, is_colored=False)

    with web.open("a") as file:
        file.write("one\nhalf")
    ray.write_text("two\n")
    tail.show()
    with web.open("a") as file:
        file.write(" and half\n")
    tail.show()

    assert shown == ["web one\n", "ray two\n", "web half and half\n"]


def test_a_long_log_is_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.touch()
    tail = LogTail({"web": log}, lambda _: None, is_colored=False)
    with log.open("a") as writer:
        while writer.tell() <= MAX_LOG_BYTES:
            writer.write("x" * 65_535 + "\n")
            writer.flush()
        for _ in range(40):
            tail.show()
        assert log.stat().st_size == 0
        writer.write("after\n")
    assert log.read_text() == "after\n"
    assert (tmp_path / "web.log.1").stat().st_size > MAX_LOG_BYTES


def test_static_files_are_collected_again_only_when_one_changes(tmp_path: Path) -> None:
    source, root = tmp_path / "static", tmp_path / "collected"
    source.mkdir()
    root.mkdir()
    (source / "a.css").write_text("a {}")
    digest = fingerprint([source])
    (root / "collected.sha256").write_text(digest)
    assert is_current(root, fingerprint([source]))

    (source / "a.css").write_text("a { color: red }")

    assert not is_current(root, fingerprint([source]))
