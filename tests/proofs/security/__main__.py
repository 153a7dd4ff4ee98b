"""`make proof-security [ONLY=matrix,generated,attacks,embedded,compose,elsewhere,H1,L8] [EXAMPLES=2] [URL=]`.

Names of parts, of topologies and of findings may be mixed; what is not named of a kind is done whole. Exit code 1 if
anything does not hold. `elsewhere` needs root. EXAMPLES are generated requests for each operation and role: with two
all takes half an hour on two cores, with twenty several. What is done whole is put onto the page, in the place of an
earlier go.
"""

import importlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.proofs.security.report import PARTS, misses, write
from tests.proofs.security.site import TOPOLOGIES, Site

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "build" / "proofs" / "security.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to do; `findings` is empty for all."""

    parts: Sequence[str]
    topologies: Sequence[str]
    findings: Sequence[str]


def wanted(only: str, findings: Sequence[str]) -> Wanted:
    """Return what ONLY asks for. Raises: ValueError with a sentence for a name that is none."""
    names = [name for name in only.split(",") if name]
    known = {*PARTS, *TOPOLOGIES, *findings}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"There is no {', '.join(unknown)}. Use some of {', '.join(sorted(known))}.")
    chosen = [name for name in names if name in findings]
    parts = [name for name in PARTS if name in names] or (["attacks"] if chosen else list(PARTS))
    return Wanted(parts=parts, topologies=[t for t in TOPOLOGIES if t in names] or list(TOPOLOGIES), findings=chosen)


def examine(site: Site, todo: Wanted, found: dict[str, Any], *, with_local: bool, examples: int) -> None:
    """Attack one console; write what is found into `found`, by part, as it is found."""
    from tests.proofs.security import generated, matrix
    from tests.proofs.security.attacks.answers import ask_first_document

    scene: Mapping[str, Any] = site.scene() | json.loads(site.python(_WHERE).splitlines()[-1])
    ask_first_document(site, scene)
    if "attacks" in todo.parts:
        found["attacks"] = []
        for told in _attacks(site, scene, todo, with_local=with_local):
            found["attacks"].append(told)
    if "generated" in todo.parts:
        found["generated"] = {}
        for role in generated.ROLES:
            of_role = generated.check(site, scene, role=role, examples=examples)
            scene = site.scene() if role in generated.DELETING else scene  # the next finds all of it again
            found["generated"][role] = {
                "by_status": dict(of_role.by_status),
                "errors": of_role.errors,
                "operations": of_role.num_operations,
            }
            print(f"{site.name} generated as {role}: {found['generated'][role]}", flush=True)
    if "matrix" in todo.parts:
        answers = matrix.check(site, scene)
        found["matrix"] = {"by_status": dict(answers.by_status), "wrong": answers.wrong}
        print(f"{site.name} matrix: {answers.num_requests} requests, {len(answers.wrong)} wrong", flush=True)


def _attacks(site: Site, scene: Mapping[str, Any], todo: Wanted, *, with_local: bool) -> Iterator[dict[str, Any]]:
    from tests.proofs.security.attack import ATTACKS, Outcome

    for each in ATTACKS:
        if (todo.findings and each.finding not in todo.findings) or (each.is_local and not with_local):
            continue
        try:
            outcome = each.run(site, scene)
        except Exception as error:  # an attack that breaks has proved nothing
            outcome = Outcome(tried=each.name, got=f"the attack itself failed: {type(error).__name__}: {error}"[:300])
        print(
            f"{site.name} {each.finding} {each.name}: {outcome.stopped_by or 'NOT STOPPED: ' + outcome.got}", flush=True
        )
        yield {"finding": each.finding, "name": each.name, "is_stopped": outcome.is_stopped, **asdict(outcome)}


_WHERE = """
import json
from urllib.parse import urlsplit
from django.conf import settings
places = [urlsplit(url) for url in (settings.REDIS_URL, settings.RAY_ADDRESS)]
database = settings.DATABASES["default"]
services = [(p.hostname, p.port) for p in places if p.port]
services += [(database["HOST"], int(database["PORT"] or 5432))] if "/" not in (database.get("HOST") or "/") else []
print(json.dumps({"data_dir": str(settings.DATA_DIR), "services": services}))
"""  # files and addresses that an attacker may have heard of


def main() -> int:
    """Do what is asked for, write the page; return 1 if something did not hold, 2 for a name that is none."""
    from tests.proofs.security.attack import ATTACKS

    for file in sorted((Path(__file__).parent / "attacks").glob("[a-z]*.py")):  # each adds its own
        importlib.import_module(f"tests.proofs.security.attacks.{file.stem}")
    try:
        todo = wanted(os.environ.get("ONLY", ""), sorted({each.finding for each in ATTACKS}))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    examples = int(os.environ.get("EXAMPLES") or 2)
    results: dict[str, Any] = {}
    for name in todo.topologies:
        found: dict[str, Any] = {}
        results[name] = found
        try:
            if name == "elsewhere" and (os.geteuid() != 0 or shutil.which("ip") is None):
                raise LookupError("needs root and iproute2")
            with TOPOLOGIES[name]() as site:
                examine(site, todo, found, with_local=name == "embedded", examples=examples)
        except (Exception, pytest.fail.Exception) as error:
            traceback.print_exc()
            found.setdefault("attacks", []).append(_broken(f"{type(error).__name__}: {error}"))
        if not todo.findings:  # parts of it say little
            write(_kept(name, found, examples=examples))
    bad = misses(results)
    print("\n".join(bad))
    print(f"{len(bad)} did not hold." if bad else "All held.")
    return 1 if bad else 0


def _kept(name: str, found: Mapping[str, Any], *, examples: int) -> dict[str, Any]:
    """Put what was found in the place of what earlier goes found of these parts; return all there is."""
    results = {each: {} for each in TOPOLOGIES} | (json.loads(RESULTS.read_text()) if RESULTS.exists() else {})
    told = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    whens = {part: told + (f", {examples} examples" if part == "generated" else "") for part in found}
    results[name] |= {**found, "when": results[name].get("when", {}) | whens}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))
    return results


def _broken(why: str) -> dict[str, Any]:
    got = f"it was not done to its end: {why[:300]}"
    outcome = {"is_stopped": False, "tried": "nothing", "stopped_by": "", "got": got}
    return {"finding": "all", "name": "what is not listed"} | outcome


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    sys.exit(main())
