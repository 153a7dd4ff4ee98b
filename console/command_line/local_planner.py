"""The planner on the command line, without a console: the same answers as the API gives, by what is shipped.

    LocalPlanner().can_it_run("", {"model": "qwen2.5-7b", "on": ["h100"]}) -> CanItRunJson

It has the methods of ApiClient that plan, and refuses as a console does. It needs no database, no token and no cluster;
who wants a project's prices and constants, or its cluster, asks a console.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError

from console.api.invalid_body import sentence_of_error
from console.api.problem import RequestProblem
from console.command_line.api_client import RequestRefused
from console.command_line.planner_json import AdviceJson, CanItRunJson, DiffusionJson, LayoutsJson, PlanJson
from jobs.catalog.sentence import sentence_of
from jobs.planning.policy_model import PlanRefused

if TYPE_CHECKING:
    from console.api.planner.schema import PlanIn
    from jobs.planning.question import PlannerQuestion

P = ParamSpec("P")
T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)


class LocalPlanner:
    """The planner in this process. Its methods raise RequestRefused, and each loads what it alone needs: half of what a
    command takes would be modules of the others."""

    def first_project(self) -> str:
        """Return no project: there is none here."""
        return ""

    def close(self) -> None:
        """Nothing is open."""

    def can_it_run(self, _project: str, body: Mapping[str, object]) -> CanItRunJson:
        """Return whether a language model trains by a method, and where."""
        from console.api.planner.can_it_run_answer import CanItRunIn, answered

        question_body = _read(CanItRunIn, _with_config(body, str(body.get("model", ""))))
        return _json(answered, question_body, None, may_read=False, ask=_here)

    def diffusion(self, _project: str, body: Mapping[str, object]) -> DiffusionJson:
        """Return whether a diffusion transformer trains by a method, and where."""
        from console.api.planner import diffusion

        return _json(diffusion.answered, _read(diffusion.DiffusionIn, body), None, ask=_here)

    def plan(self, _project: str, body: Mapping[str, object]) -> PlanJson:
        """Return what the planner says of a spec."""
        from console.api.planner.schema import PlanIn, PlanOut
        from jobs.planning.question import estimate_of

        about = _question(_read(PlanIn, body))
        return _json(lambda: PlanOut.of(about, estimate_of(about)))

    def advice(self, _project: str, body: Mapping[str, object]) -> AdviceJson:
        """Return what would make a spec fit, or faster."""
        from console.api.planner.schema import PlanAdviceOut, PlanIn
        from jobs.planning.question import advice, sensitivities_of

        about = _question(_read(PlanIn, body))
        return _json(lambda: PlanAdviceOut.of(advice(about), sensitivities_of(about)))

    def layouts(self, _project: str, body: Mapping[str, object]) -> LayoutsJson:
        """Return the best layouts of a spec."""
        from console.api.planner.schema import LayoutsIn, PlanLayoutsOut
        from jobs.planning.question import layouts

        question_body = _read(LayoutsIn, body)
        about = _question(question_body)
        return _json(
            lambda: PlanLayoutsOut.of(layouts(about, goal=question_body.goal, limit=question_body.limit, ask=_here))
        )


def _here(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


def _read(schema: type[Body], body: Mapping[str, object]) -> Body:
    """Return what is question_body, checked as the API checks it."""
    try:
        return schema.model_validate(body)
    except ValidationError as invalid:
        problems = [(".".join(map(str, error["loc"])), sentence_of_error(error)) for error in invalid.errors()]
        raise RequestRefused(422, problems) from invalid


def _json(answer: Callable[P, BaseModel], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Return an answer as the API would send it."""
    try:
        return answer(*args, **kwargs).model_dump(mode="json")
    except RequestProblem as problem:
        raise RequestRefused(problem.status, [(p["field"], p["message"]) for p in problem.problems]) from problem
    except PlanRefused as refused:
        raise RequestRefused(422, [(refused.field, sentence_of(refused))]) from refused


def _question(body: "PlanIn") -> "PlannerQuestion":
    """Return a spec on the hardware that is named."""
    from jobs.catalog.spec.parse import SpecInvalid, parse_spec
    from jobs.cluster.ray_api import ClusterState
    from jobs.planner.read.context import Workload
    from jobs.planning.question import WhatIf, hardware_of_recipe, question

    try:
        spec = parse_spec(body.spec, device="cuda")
        fallback = hardware_of_recipe(body.recipe, spec)
        if body.what_if is None and fallback is None:
            text = "No hardware is named. Use --on h200 --nodes 1, or --project for the cluster of a console."
            raise RequestRefused(422, [("what_if", text)])
        config = _config_in(spec.model.id) if spec.model.kind == "path" and body.config is None else body.config
        return question(
            spec,
            project=None,
            user=None,
            state=ClusterState(is_reachable=False, problem="", away_since=None, nodes=(), cpus_total=0, gpus_total=0),
            what_if=WhatIf(**body.what_if.dict()) if body.what_if is not None else None,
            fallback=fallback,
            config=config,
            workload=Workload(**body.workload.dict()) if body.workload is not None else None,
        )
    except SpecInvalid as invalid:
        raise RequestRefused(422, [(p.field, str(p.message)) for p in invalid.problems]) from invalid
    except PlanRefused as refused:
        raise RequestRefused(422, [(refused.field, sentence_of(refused))]) from refused


def _with_config(body: Mapping[str, object], model: str) -> dict[str, object]:
    """Return the question with the config.json of a folder that is named in it."""
    if body.get("config") is None and model.startswith(("/", "~", ".")):
        return {**body, "config": _config_in(model)}
    return dict(body)


def _config_in(folder: str) -> Any:
    """Return the config.json of a model's folder on this machine."""
    path = Path(folder).expanduser() / "config.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestRefused(422, [("model", f"{path} cannot be read as JSON: {error}.")]) from error
