"""The consoles that are attacked: embedded, the processes of compose, and with Ray elsewhere."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

MARK = "SCENE "


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running console. `urls`: of each of its web processes. `manage` runs a `manage.py` command in its environment.

    `data_dir`: where its files are, as this process sees them; None where it cannot.
    """

    name: str
    urls: tuple[str, ...]
    manage: Callable[..., str]
    data_dir: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The first web process."""
        return self.urls[0]

    def python(self, code: str) -> str:
        """Run Python in the console's environment, its models at hand; return what it prints."""
        return self.manage("shell", "--verbosity", "0", "-c", code)

    def client(self, **more: Any) -> httpx.Client:
        """Return a client that is nobody yet."""
        headers = {**self.headers, **more.pop("headers", {})}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120, trust_env=False, **more)

    def scene(self) -> dict[str, Any]:
        """Make people and projects, once; return their cookies, tokens and the ids of what is theirs."""
        printed = self.python("from tests.proofs.security.scene import write; write()")
        line = next(line for line in printed.splitlines() if line.startswith(MARK))
        made: dict[str, Any] = json.loads(line.removeprefix(MARK))
        return made


@contextmanager
def embedded() -> Iterator[Site]:
    """`manage.py up`, with the Ray head that it starts."""
    from tests.journeys.conftest import start_stack, stop_stack

    stack = start_stack()
    try:
        yield Site(name="embedded", urls=(stack.url,), manage=stack.manage, data_dir=stack.data_dir)
    finally:
        stop_stack(stack)


@contextmanager
def composed() -> Iterator[Site]:
    """The commands of docker-compose.yml with PostgreSQL and Valkey, two web processes; Ray stands outside."""
    from tests.journeys.compose import example, running
    from tests.ray_head import running_head

    with running_head(is_warm=False) as head, running(example(), ray_address=head.api, ray_token=head.token) as made:
        webs = (made.addresses["web"], f"{made.network}.102")

        def manage(*arguments: str) -> str:
            return made.run("web", "python", "manage.py", *arguments)

        urls = tuple(f"http://{web}:8000" for web in webs)
        yield Site(name="compose", urls=urls, manage=manage, data_dir=made.folder / "data", headers={"Host": HOST})


@contextmanager
def elsewhere() -> Iterator[Site]:
    """A console on a machine of its own, Ray on two others: namespaces of the kernel, so it needs root."""
    from tests.journeys.two_nodes import two_nodes

    with tempfile.TemporaryDirectory() as logs, two_nodes(Path(logs)) as cluster:
        yield Site(name="elsewhere", urls=(cluster.url,), manage=cluster.manage)


HOST = "localhost:8000"  # as which the composition answers
TOPOLOGIES: Mapping[str, Callable[[], Any]] = {"embedded": embedded, "compose": composed, "elsewhere": elsewhere}
