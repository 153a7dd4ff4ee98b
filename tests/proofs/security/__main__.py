"""`make proof-security [ONLY=matrix,generated,attacks,embedded,compose,elsewhere,H1,L8] [EXAMPLES=20] [URL=]`.

Names of parts, of topologies and of findings may be mixed; what is not named of a kind is done whole. Exit code 1 if
anything does not hold. `elsewhere` needs root.
"""

import contextlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.proofs.security.report import misses, write
from tests.proofs.security.site import TOPOLOGIES, Site

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "build" / "proofs" / "security.json"
PARTS = ("matrix", "generated", "attacks")


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


def examine(site: Site, todo: Wanted, *, with_local: bool, examples: int) -> dict[str, Any]:
    """Attack one console; return what was found, by part."""
    from tests.proofs.security import generated, matrix
    from tests.proofs.security.attacks.answers import ask_first_document

    scene: Mapping[str, Any] = site.scene() | {"data_dir": _data_dir(site)}
    ask_first_document(site, scene)
    found: dict[str, Any] = {}
    if "attacks" in todo.parts:
        found["attacks"] = list(_attacks(site, scene, todo, with_local=with_local))
    if "generated" in todo.parts:
        found["generated"] = {}
        for role in generated.ROLES:
            of_role = generated.check(site, scene, role=role, examples=examples)
            found["generated"][role] = {
                "by_status": dict(of_role.by_status),
                "errors": of_role.errors,
                "operations": of_role.num_operations,
            }
            print(f"{site.name} generated as {role}: {found['generated'][role]}", flush=True)
    if "matrix" in todo.parts:
        answers = matrix.check(site, site.scene() if "generated" in todo.parts else scene)
        found["matrix"] = {"by_status": dict(answers.by_status), "wrong": answers.wrong}
        print(f"{site.name} matrix: {answers.num_requests} requests, {len(answers.wrong)} wrong", flush=True)
    return found


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


def _data_dir(site: Site) -> str:
    return site.python("from django.conf import settings; print(settings.DATA_DIR)").split()[-1]


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
    examples = int(os.environ.get("EXAMPLES") or 20)
    results: dict[str, Any] = {}
    for number, name in enumerate(todo.topologies):
        if name == "elsewhere" and (os.geteuid() != 0 or shutil.which("ip") is None):
            print("elsewhere needs root and iproute2: left out, and so this proof is not whole.", file=sys.stderr)
            results[name] = {"attacks": [_left_out()]}
            continue
        with contextlib.ExitStack() as stack:
            site = stack.enter_context(TOPOLOGIES[name]())
            results[name] = examine(site, todo, with_local=number == 0, examples=examples)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))
    if not os.environ.get("ONLY"):
        write(results)
    bad = misses(results)
    print("\n".join(bad))
    print(f"{len(bad)} did not hold." if bad else "All held.")
    return 1 if bad else 0


def _left_out() -> dict[str, Any]:
    return {
        "finding": "all",
        "name": "all of them",
        "is_stopped": False,
        "tried": "nothing",
        "stopped_by": "",
        "got": "left out: needs root and iproute2",
    }


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    sys.exit(main())
