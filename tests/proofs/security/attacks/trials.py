"""H1: code that an editor may have tried (a reward, a preview) reaches for what is the console's."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.site import Site

# What each part reaches for; it says what it got, "" for nothing. HOST, PORT, DATA and
# SERVICES are filled in.
_REACHES: Mapping[str, str] = {
    "the environment of the console's processes": """
got = ""
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    try:
        line = open(f"/proc/{pid}/cmdline", "rb").read()
        if b"manage.py" in line and open(f"/proc/{pid}/environ", "rb").read():
            got = "environment of process " + pid
    except OSError:
        pass
""",
    "the secret key": 'got = "secret_key" if open(DATA + "/secret_key").read() else ""',
    "the database": """
import sqlite3
rows = sqlite3.connect("file:" + DATA + "/pitwall.sqlite3?mode=ro", uri=True).execute("select slug from jobs_project")
got = "projects " + repr(rows.fetchall())
""",
    "the uploads of another project": 'got = "files " + repr(os.listdir(DATA + "/files")[:3])',
    "the console's own address": """
import socket
socket.create_connection((HOST, PORT), 3)
got = "a connection"
""",
    "database, Redis and Ray by their addresses": """
import socket
refused = ""
for host, port in SERVICES:
    try:
        socket.create_connection((host, port), 3).close()
        got += f"{host}:{port} "
    except OSError as error:
        refused = type(error).__name__
if not got and refused:
    raise RuntimeError(refused)
""",
    "Redis": """
import socket
line = socket.socket(socket.AF_UNIX)
line.settimeout(3)
line.connect(DATA + "/redis.sock")
got = "a connection"
""",
    "a file outside its folder": """
import tempfile
path = os.path.join(DATA, "written-by-a-trial")
open(path, "w").write("x")
os.unlink(path)
got = path
""",
}


def _source(reach: str, *, host: str, port: int, data: str, services: Sequence[Sequence[Any]]) -> str:
    body = "\n".join(f"    {line}" for line in reach.strip().splitlines())
    return (
        f"import os\nHOST, PORT, DATA = {host!r}, {port}, {data!r}\nSERVICES = {services!r}\n\n\n"
        "def reward(prompt, completion, answer):\n"
        f'    got = ""\n    try:\n{_indented(body)}\n    except Exception as error:\n'
        '        raise ValueError("NOTHING " + type(error).__name__)\n'
        '    raise ValueError(("GOT " + got) if got else "NOTHING it was empty")\n'
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _try(site: Site, scene: Mapping[str, Any], source: str) -> tuple[int, str]:
    spec = {"name": "attack", "reward": {"kind": "custom", "file_name": "a.py", "source": source}}
    with site.client(headers={"Authorization": scene["tokens"]["editor"]}) as client:
        answer = client.post("/api/specs/reward-trial", params={"project": "theirs"}, json=spec)
    return answer.status_code, answer.text


def _reach(site: Site, scene: Mapping[str, Any], what: str) -> Outcome:
    data = scene["data_dir"]
    at = urlsplit(site.url)
    host, services = at.hostname or "", scene["services"]
    source = _source(_REACHES[what], host=host, port=at.port or 80, data=data, services=services)
    status, text = _try(site, scene, source)
    got = re.search(r"GOT ([^\"\\]*)", text)
    nothing = re.search(r"NOTHING ([\w ]*)", text)
    stopped_by = f"{status}: {nothing[1] if nothing else text[:160]}"
    return outcome(f"a reward that reads {what}", stopped_by=stopped_by, got=got[1] if got else "")


for _what in _REACHES:

    def _attack(site: Site, scene: Mapping[str, Any], what: str = _what) -> Outcome:
        return _reach(site, scene, what)

    _attack.__name__ = f"a_trial_reaches_for_{_what.replace(' ', '_')}"
    attack("H1")(_attack)


@attack("H1")
def a_preview_reads_a_file_below_the_data_directory(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """The rows of somebody else's upload, named by its path."""
    place = f"{scene['data_dir']}/files/stolen.jsonl"
    site.python(f"open({place!r}, 'w').write('{json.dumps({'prompt': 'their secret row', 'answer': '1'})}\\n' * 8)")
    spec = {"name": "attack", "data": {"kind": "path", "id": place}}
    with site.client(headers={"Authorization": scene["tokens"]["editor"]}) as client:
        answer = client.post("/api/specs/preview", params={"project": "theirs"}, json=spec)
    got = "their rows" if "their secret row" in answer.text else ""
    return outcome(f"a preview of {place}", stopped_by=f"{answer.status_code}: {answer.text[:160]}", got=got)


@attack("H1")
def nothing_is_stopped_because_nothing_works(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """A harmless reward is tried, or the refusal says that trials are off: else the attacks above prove nothing."""
    status, text = _try(site, scene, "def reward(prompt, completion, answer):\n    return 0.5\n")
    is_fair = (status == 200 and "0.5" in text) or status in (403, 409)
    return outcome(
        "a harmless reward", stopped_by=f"{status}: {text[:120]}", got="" if is_fair else f"{status}: {text[:160]}"
    )
