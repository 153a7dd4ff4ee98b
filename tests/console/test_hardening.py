"""What another process of the console's user reads of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from console.embedded.ray_head import ray_environment
from console.hardening import SECRETS

LOOK = """
import ctypes, os, sys
from console.hardening import harden
if os.getuid() == 0:  # from whom nothing is hidden
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a program is that was started by its user
if sys.argv[1] == "hardened":
    harden()
console = os.getpid()
if os.fork() == 0:
    for name in ("environ", "mem", "maps"):
        try:
            open(f"/proc/{console}/{name}", "rb").close()
            print("read", name, flush=True)
        except PermissionError:
            pass
    os._exit(0)
os.wait()
print(sorted(os.environ), flush=True)
"""


@pytest.mark.parametrize("how", ["hardened", "open"])
def test_a_process_of_the_same_user_reads_nothing_of_a_hardened_one(how: str) -> None:
    environment = dict.fromkeys(SECRETS, "x") | {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}

    done = subprocess.run(
        [sys.executable, "-c", LOOK, how], capture_output=True, text=True, check=True, env=environment
    )

    *read, left = done.stdout.splitlines()
    assert read == ([] if how == "hardened" else ["read environ", "read mem", "read maps"])
    assert any(name in left for name in SECRETS) == (how == "open")


def test_every_secret_that_settings_read_leaves_the_environment_and_is_kept_from_runs() -> None:
    read = re.findall(r"env\.\w+\(\s*\"(\w+)\"", Path("console/settings.py").read_text(encoding="utf-8"))
    secret = {name for name in read if re.search(r"SECRET|PASSWORD(?!S)|TOKEN|_KEY$|_URL$", name)} - {
        "PITWALL_PUBLIC_URL",
        "PITWALL_RUNNER_URL",
    }

    assert {"PITWALL_OIDC_CLIENT_SECRET", "PITWALL_SMTP_PASSWORD", "PITWALL_METRICS_TOKEN"} <= secret <= set(SECRETS)
    given = ray_environment(dict.fromkeys(SECRETS, "x"), token="of Ray")
    assert [name for name, value in given.items() if value == "x"] == []
