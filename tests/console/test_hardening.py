"""What another process of the console's user reads of it."""

import os
import subprocess
import sys

import pytest

from console.hardening import SECRETS

LOOK = """
import os, sys
from console.hardening import harden
if os.getuid() == 0:  # whom nothing is hidden from
    os.setgid(65534)
    os.setuid(65534)
if sys.argv[1] == "hardened":
    harden()
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-S", "-c", %r, str(os.getppid())])
os.wait()
print(sorted(os.environ), flush=True)
"""
OTHER = """
import sys
for name in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{sys.argv[1]}/{name}", "rb")
        print("read", name, flush=True)
    except PermissionError:
        pass
"""


@pytest.mark.parametrize("how", ["hardened", "open"])
def test_a_process_of_the_same_user_reads_nothing_of_a_hardened_one(how: str) -> None:
    code = LOOK.replace("os.getppid()", "parent").replace("if os.fork()", "parent = os.getpid()\nif os.fork()") % OTHER
    secrets = dict.fromkeys(SECRETS, "x")

    done = subprocess.run(
        ["/usr/bin/env", *(f"{name}={value}" for name, value in secrets.items()), sys.executable, "-c", code, how],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()},
    )

    *read, environment = done.stdout.splitlines()
    assert ("read environ" in read) == (how == "open")
    assert read == [] or how == "open"
    assert any(name in environment for name in SECRETS) == (how == "open")
