"""Machines inside this machine: each with a network, processes, a name and file systems of its own.

Namespaces of the kernel, joined by a bridge: what one machine writes no other can read (the system's disk is read-only
in them), what runs on one no other can see, and all they have of each other is the network. Needs root.
"""

import contextlib
import ipaddress
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[1]
START_SECONDS = 200.0
HOME = "/tmp"
PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/run")
KEPT = "/mnt"  # what lies there is out of the way while a machine is made


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One of them: `address` is its own on the network, `gateway` that of the machine around it."""

    name: str
    address: str
    gateway: str
    pid: int  # of its first process, as seen from outside; everything in it ends with that

    def argv(self, *command: str) -> list[str]:
        """Return the command line that runs `command` in here."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--uts", "--ipc", "--", *command]

    def start(self, *command: str, env: Mapping[str, str], log: Path, cwd: str = "/") -> subprocess.Popen[bytes]:
        """Start a process in here; what it prints goes to `log`, out there."""
        wrapped = self.argv("env", "--chdir", cwd, f"HOME={HOME}", *command)
        with log.open("ab") as out:
            return subprocess.Popen(wrapped, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def run(self, *command: str, env: Mapping[str, str] | None = None, seconds: float = 200.0) -> str:
        """Run a command in here and return what it prints. Raises: CalledProcessError."""
        wrapped = self.argv("env", "--chdir", "/", f"HOME={HOME}", *command)
        done = subprocess.run(wrapped, env=env, check=True, capture_output=True, text=True, timeout=seconds)
        return done.stdout

    def has(self, path: str) -> bool:
        """Return whether there is such a file in here."""
        return subprocess.run(self.argv("test", "-e", path), check=False).returncode == 0


@contextlib.contextmanager
def machines(names: Sequence[str], *, with_code: Sequence[str] = ()) -> Iterator[dict[str, Machine]]:
    """Start machines of these names, joined by a network of their own; end them with all that runs in them.

    Only those `with_code` see this repository; the others have its Python environment and nothing else of it.
    Skips the test where the kernel or the user's rights do not allow it.
    """
    if os.geteuid() != 0:
        pytest.skip("several machines in one need root (network namespaces)")
    if shutil.which("ip") is None:
        pytest.skip("several machines in one need the program ip; install the package iproute2")
    bridge = f"pw{os.getpid() % 1_000_000}"
    network = ipaddress.ip_network(f"10.{200 + os.getpid() // 250 % 50}.{os.getpid() % 250}.0/24")
    hosts = [str(host) for host in network.hosts()]
    _ip("link", "add", bridge, "type", "bridge")
    started: list[subprocess.Popen[bytes]] = []
    cables: list[str] = []
    try:
        _ip("addr", "add", f"{hosts[0]}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        made = {}
        for number, name in enumerate(names):
            process = _boot(name, is_bare=name not in with_code)
            started.append(process)
            pid = _first_process(process)
            address = hosts[10 + number]
            cables.append(f"{bridge}-{number}")
            _plug_in(pid, bridge=bridge, cable=cables[-1], address=address, gateway=hosts[0])
            made[name] = Machine(name=name, address=address, gateway=hosts[0], pid=pid)
        yield made
    finally:
        for process in started:
            process.kill()
            process.wait(START_SECONDS)
        for link in (*cables, bridge):
            with contextlib.suppress(subprocess.CalledProcessError):  # the kernel may have been faster
                _ip("link", "del", link)


def _boot(name: str, *, is_bare: bool) -> subprocess.Popen[bytes]:
    """Start the first process of a machine: it waits for ever, and collects the orphans."""
    lines = ["set -e", "mount --make-rprivate /", f"hostname {shlex.quote(name)}"]
    lines += _keep_code()
    lines += [f"mount -t tmpfs -o mode=1777 tmpfs {folder}" for folder in PRIVATE if Path(folder).is_dir()]
    lines += _show_code(is_bare=is_bare)
    lines += [
        "mount -o remount,bind,ro /",
        "echo nameserver 127.0.0.1 > /run/resolv.conf",  # nobody there: a name that is not known is not waited for
        f"echo 127.0.0.1 localhost {shlex.quote(name)} > /run/hosts",
        "mount --bind /run/resolv.conf /etc/resolv.conf",
        "mount --bind /run/hosts /etc/hosts",
        "ip link set lo up",
        "echo ready",
        "sleep infinity & wait",
    ]
    command = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    return subprocess.Popen([*command, "bash", "-c", "\n".join(lines)], stdout=subprocess.PIPE)


def _keep_code() -> list[str]:
    """Return what lets the repository and the Python environment be found once other folders lie over them."""
    kept = {"house": HOUSE, "env": Path(sys.prefix).resolve()}
    lines = [f"mount -t tmpfs tmpfs {KEPT}"]
    for name, folder in kept.items():
        lines += [f"mkdir {KEPT}/{name}", f"mount --bind {shlex.quote(str(folder))} {KEPT}/{name}"]
    return lines


def _show_code(*, is_bare: bool) -> list[str]:
    """Return what puts the repository in its place, read-only, or for a bare machine nothing but the environment."""
    prefix = Path(sys.prefix).resolve()
    env, house = shlex.quote(str(prefix)), shlex.quote(str(HOUSE))
    lines = [f"mkdir -p {house}"]
    if is_bare:
        lines += [f"mount -t tmpfs tmpfs {house}"]
    else:
        lines += [f"mount --bind -o ro {KEPT}/house {house}"]
    if is_bare or not prefix.is_relative_to(HOUSE):
        lines += [f"mkdir -p {env}", f"mount --bind -o ro {KEPT}/env {env}"]
    return [*lines, f"umount {KEPT}/house {KEPT}/env", f"umount {KEPT}"]


def _first_process(booted: subprocess.Popen[bytes]) -> int:
    """Wait until the machine is up; return the id of its first process, as seen from here."""
    assert booted.stdout is not None
    if booted.stdout.readline() != b"ready\n":
        pytest.skip(f"several machines in one need kernel namespaces; `unshare` ended with {booted.wait(5)}")
    children = Path(f"/proc/{booted.pid}/task/{booted.pid}/children").read_text().split()
    return int(children[0])


def _plug_in(pid: int, *, bridge: str, cable: str, address: str, gateway: str) -> None:
    inside = ["nsenter", "--target", str(pid), "--net", "ip"]
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("link", "set", cable, "master", bridge, "up")
    subprocess.run([*inside, "addr", "add", f"{address}/24", "dev", "eth0"], check=True)
    subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)
    subprocess.run([*inside, "route", "add", "default", "via", gateway], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
