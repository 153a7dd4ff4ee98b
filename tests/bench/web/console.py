"""A console of one revision over a store of one case."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.embedded.ports import free_block
from tests.services import Valkey, own_environment

START_SECONDS = 120.0
SEED = Path(__file__).with_name("seed.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A console that answers at `url`, the cookie of its viewer, its process, and what its store was filled with."""

    url: str
    session: str
    web_pid: int
    seeded: dict[str, Any]


@contextmanager
def console(*, code: Path, case: str, data: Path) -> Iterator[Seen]:
    """Fill a store in `data` (or take the one that is there), start web and ingest over it, and end them."""
    data.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        valkey = Valkey(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pw-web-vk-"))))
        valkey.start()
        stack.callback(valkey.kill)
        (port,) = free_block(1, seed=f"web of {data}")
        url = f"http://127.0.0.1:{port}"
        env = own_environment() | {
            "PITWALL_DATA_DIR": str(data),
            "PITWALL_PORT": str(port),
            "PITWALL_PUBLIC_URL": url,
            "PITWALL_LOG_LEVEL": "ERROR",
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "REDIS_URL": valkey.url,
        }
        manage = [sys.executable, "manage.py"]
        for command in (["migrate", "-v0"], ["collectstatic", "--noinput", "-v0"]):
            subprocess.run([*manage, *command], cwd=code, env=env, check=True)
        kept = data / "seeded.json"
        if not kept.exists():
            made = subprocess.run(
                [sys.executable, str(SEED), str(code), case], cwd=code, env=env, stdout=subprocess.PIPE, check=True
            )
            kept.write_bytes(made.stdout)
        pids = {}
        for service in ("web", "ingest"):
            process = subprocess.Popen([*manage, service], cwd=code, env=env)
            pids[service] = process.pid
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
        wait_for(f"{url}/signin")
        yield Seen(url=url, web_pid=pids["web"], **json.loads(kept.read_text()))


def wait_for(url: str) -> None:
    """Return once the address answers. Raises: OSError if it does not within START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
