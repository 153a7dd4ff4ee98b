"""What a project's finished runs say of the planner, and taking it over."""

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from console.budget import expensive
from jobs.cluster.ray_api import cluster_state
from jobs.models import Project
from jobs.planner.calibration import Proposal
from jobs.planning.calibration import KindCalibration, NothingToTake, apply, calibrations
from jobs.planning.joining import joinings, joins, set_joining
from jobs.planning.settings import PlanSettingsRefused, undo_calibration

router = Router(tags=["planner"])


class ProposalOut(Schema):
    """What runs say of one constant. `before` and `after` are the median error of runs that were left out of the fit,
    as a share (1 is a factor of 2), with the value of now and with one fitted on the others."""

    constant: str
    present: float
    evidence: str = Field(description="Of `present`: measured, assumed, or set by somebody")
    proposed: float | None = Field(description="null where nothing is proposed, for the reason in `refusal`")
    before: float | None
    after: float | None
    runs: list[str]
    num_settings: int
    far: list[str] = Field(description="Runs that are further than a factor of 2 from the fit")
    refusal: str

    @classmethod
    def of(cls, proposal: Proposal, kind: KindCalibration) -> "ProposalOut":
        """Return a proposal as the API gives it."""
        return cls(
            constant=proposal.constant,
            present=proposal.present,
            evidence=kind.present.get(proposal.constant).evidence,
            proposed=proposal.proposed,
            before=proposal.before,
            after=proposal.after,
            runs=list(proposal.runs),
            num_settings=proposal.num_settings,
            far=list(proposal.far),
            refusal=proposal.refusal,
        )


class KindOut(Schema):
    """The runs on one kind of device. `before` and `after`: of whole steps, with all that is proposed."""

    accelerator: str
    num_runs: int
    before: float | None
    after: float | None
    taken_on: str = Field(description='The day on which values were last taken over, ""')
    proposals: list[ProposalOut]


class LeftOut(Schema):
    """Runs that say nothing, and why."""

    why: str
    num_runs: int


class ChangedConstantOut(Schema):
    """A constant that a run changed."""

    was: float | None = Field(description="null where nothing was known on that kind of device")
    value: float


class JoiningOut(Schema):
    """What a finished run did to the calibration of the kind of device that it was on, by itself."""

    run: str
    at: str
    accelerator: str = Field(description='"" where the run says nothing of the planner')
    num_runs: int
    num_settings: int = Field(description="Different settings that the values rest on")
    constants: dict[str, ChangedConstantOut]
    before: float | None = Field(
        description="How far its step was from the plan that had not seen it, as a share (1 is a factor of 2); null "
        "where there was no plan"
    )
    after: float | None = Field(description="The same with what it changed")
    why_not: str = Field(description='Why the run says nothing of the planner, ""')


class CalibrationOut(Schema):
    """What finished runs say, the kind of device with most runs first; which joined by themselves, the newest first."""

    kinds: list[KindOut]
    left_out: list[LeftOut]
    joins: bool = Field(description="Whether finished runs join by themselves")
    joined: list[JoiningOut]


class CalibrationIn(Schema):
    """Of which kind of device to take what is proposed; or whether finished runs join by themselves."""

    model_config = {"extra": "forbid"}

    accelerator: str | None = Field(None, max_length=200, description="An `accelerator` of the answer to GET")
    joins: bool | None = Field(None, strict=True, description="Whether finished runs join by themselves")


@router.get("/{slug:project}/calibration", response={200: CalibrationOut, **EXPENSIVE}, summary="What runs say")
@expensive
def read_calibration(request: HttpRequest, project: str) -> CalibrationOut:
    """Return what the newest finished runs say of the planner's paces, by kind of device."""
    return _answer(request, project_for(request, project))


@router.post("/{slug:project}/calibration", response={200: CalibrationOut, **REFUSALS}, summary="Take it over")
def take_calibration(request: HttpRequest, project: str, body: CalibrationIn) -> CalibrationOut:
    """Let plans for a kind of device use what runs on it propose, or say whether runs join by themselves; admins
    only."""
    home = project_for(request, project, "admin")
    if (body.accelerator is None) == (body.joins is None):
        raise RequestProblem(422, "Give one of accelerator and joins.", field="accelerator")
    if body.accelerator is None:
        set_joining(project=home, is_on=bool(body.joins), actor=caller(request))
        return _answer(request, home)
    try:
        apply(home, body.accelerator, user=caller(request), state=cluster_state(), today=timezone.localdate())
    except (NothingToTake, PlanSettingsRefused) as error:
        raise RequestProblem(422, str(error), field="accelerator") from error
    return _answer(request, home)


@router.delete("/{slug:project}/calibration", response={200: CalibrationOut, **REFUSALS}, summary="Undo the last")
def undo(request: HttpRequest, project: str, accelerator: str) -> CalibrationOut:
    """Take plans for a kind of device back to what they used before; admins only."""
    home = project_for(request, project, "admin")
    if not undo_calibration(project=home, accelerator=accelerator, actor=caller(request)):
        raise RequestProblem(422, f"No value was applied for {accelerator[:40]!r}.", field="accelerator")
    return _answer(request, home)


def _answer(request: HttpRequest, home: Project) -> CalibrationOut:
    made = calibrations(home, user=caller(request), state=cluster_state())
    kinds = [
        KindOut(
            accelerator=kind.accelerator.id,
            num_runs=kind.num_runs,
            before=kind.calibration.before,
            after=kind.calibration.after,
            taken_on=kind.on,
            proposals=[ProposalOut.of(each, kind) for each in kind.calibration.proposals],
        )
        for kind in made.kinds
    ]
    return CalibrationOut(
        kinds=kinds,
        left_out=[LeftOut(why=why, num_runs=count) for why, count in made.left_out],
        joins=joins(home),
        joined=[JoiningOut.model_validate(each) for each in joinings(home)],
    )
