"""The command line's side of the API: plain HTTP, the same verbs as the pages, refusals as problems beside fields."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from console.command_line.api_json import (
    CaptureJson,
    CheckpointJson,
    DeletionJson,
    EnvironmentJson,
    KnobsChangedJson,
    LaunchedJson,
    LiveSettingsJson,
    MergeJson,
    MetricJson,
    QuotaJson,
    ResumedJson,
    RetentionJson,
    RetentionPreviewJson,
    RunJson,
    RunListJson,
    RunsChangedJson,
    SeriesJson,
    StudyLaunchedJson,
    StudyTableJson,
    TraceJson,
    TrashEntryJson,
)
from console.command_line.planner_json import (
    AdviceJson,
    BandJson,
    CalibrationJson,
    CanItRunJson,
    DiffusionJson,
    LayoutsJson,
    PlanJson,
    PostMortemJson,
    RunPlanJson,
)

if TYPE_CHECKING:
    import httpx

_Answer = TypeVar("_Answer")

ENDED = ("finished", "failed", "stopped")
_TIMEOUT, _CONNECT_TIMEOUT = 180.0, 5.0  # seconds; a launch tries data, model and reward first
_PIECE_BYTES = 4 << 20
_TRY_AGAIN_SECONDS = 300.0  # a console that is restarted while we follow is waited for this long


class ConsoleAway(ConnectionError):
    """Nothing answers at the address as a console does."""


class RequestRefused(Exception):
    """The console said no: `problems` are (field, sentence)."""

    def __init__(self, status: int, problems: list[tuple[str, str]]) -> None:
        self.status = status
        self.problems = problems
        super().__init__("; ".join(f"{field}: {text}" if field else text for field, text in problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """A run that the console has queued; `is_new` is False if the same request had made it before; `note`: what the
    console remarks of it."""

    id: str
    url: str
    is_new: bool
    note: str = ""


class ApiClient:
    """One console and one token."""

    def __init__(self, url: str, token: str, *, transport: "httpx.BaseTransport | None" = None) -> None:
        import httpx  # a command line of its own comes with it, and what is answered without a console needs none

        is_near = httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(_TIMEOUT, connect=_CONNECT_TIMEOUT),
            transport=transport,
            trust_env=not is_near,
        )
        self._failure: type[httpx.HTTPError] = httpx.HTTPError

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def launch(self, spec: Any, *, key: str, project: str | None = None, parent: str | None = None) -> LaunchResult:
        """Queue a run of the spec, a clone of `parent` if that is named; the same key again gives the same run.

        Raises: RequestRefused, ConsoleAway.
        """
        query = {name: text for name, text in (("project", project), ("parent", parent)) if text}
        answer = self._send("POST", "/api/runs", json=spec, params=query, headers={"Idempotency-Key": key})
        made: LaunchedJson = answer.json()
        return LaunchResult(id=made["run"]["id"], url=made["url"], is_new=answer.status_code == 201, note=made["note"])

    def sweep(self, spec: Any, sweep: Mapping[str, object], *, key: str, project: str | None = None) -> LaunchResult:
        """Queue the runs of a sweep; the same key again gives the same sweep. Raises: RequestRefused, ConsoleAway."""
        query = {"project": project} if project else {}
        body = {"spec": spec, "sweep": sweep}
        answer = self._send("POST", "/api/studies", json=body, params=query, headers={"Idempotency-Key": key})
        made: StudyLaunchedJson = answer.json()
        return LaunchResult(id=made["study"]["id"], url=made["url"], is_new=answer.status_code == 201)

    def environment(self, project: str) -> EnvironmentJson:
        """Return variables and names of secrets of a project. Raises: RequestRefused, ConsoleAway."""
        answer: EnvironmentJson = self._send("GET", f"/api/projects/{quote(project)}/environment").json()
        return answer

    def set_variable(self, project: str, name: str, value: str, *, is_secret: bool) -> None:
        """Keep a variable or secret of a project. Raises: RequestRefused, ConsoleAway."""
        body = {"value": value, "is_secret": is_secret}
        self._send("PUT", f"/api/projects/{quote(project)}/environment/{quote(name, safe='')}", json=body)

    def remove_variable(self, project: str, name: str) -> None:
        """Remove a variable or secret of a project. Raises: RequestRefused, ConsoleAway."""
        self._send("DELETE", f"/api/projects/{quote(project)}/environment/{quote(name, safe='')}")

    def first_project(self) -> str:
        """Return the slug of the caller's first project. Raises: RequestRefused without any, ConsoleAway."""
        projects = self._send("GET", "/api/projects").json()["projects"]
        if not projects:
            raise RequestRefused(404, [("project", "You are not a member of any project yet.")])
        return str(projects[0]["slug"])

    def plan(self, project: str, body: Mapping[str, object]) -> PlanJson:
        """Return what the planner says of a spec. Raises, as all that plan: RequestRefused, ConsoleAway."""
        answer: PlanJson = self._ask_planner(project, body, "")
        return answer

    def advice(self, project: str, body: Mapping[str, object]) -> AdviceJson:
        """Return what would make a spec fit, or faster."""
        answer: AdviceJson = self._ask_planner(project, body, "/advice")
        return answer

    def layouts(self, project: str, body: Mapping[str, object]) -> LayoutsJson:
        """Return the best layouts of a spec."""
        answer: LayoutsJson = self._ask_planner(project, body, "/layouts")
        return answer

    def can_it_run(self, project: str, body: Mapping[str, object]) -> CanItRunJson:
        """Return whether a language model trains by a method, and where."""
        answer: CanItRunJson = self._ask_planner(project, body, "/can-it-run")
        return answer

    def diffusion(self, project: str, body: Mapping[str, object]) -> DiffusionJson:
        """Return whether a diffusion transformer trains by a method, and where."""
        answer: DiffusionJson = self._ask_planner(project, body, "/diffusion")
        return answer

    def _ask_planner(self, project: str, body: Mapping[str, object], part: str) -> Any:
        return self._send("POST", f"/api/projects/{quote(project, safe='')}/plan{part}", json=dict(body)).json()

    def calibration(self, project: str) -> CalibrationJson:
        """Return what the project's finished runs say of the planner."""
        return self._calibration("GET", project)

    def take_calibration(self, project: str, accelerator: str) -> CalibrationJson:
        """Let plans for a kind of device use what runs propose. Raises: RequestRefused, ConsoleAway."""
        return self._calibration("POST", project, json={"accelerator": accelerator})

    def set_joining(self, project: str, *, is_on: bool) -> CalibrationJson:
        """Let finished runs join the calibration by themselves, or not. Raises: RequestRefused, ConsoleAway."""
        return self._calibration("POST", project, json={"joins": is_on})

    def undo_calibration(self, project: str, accelerator: str) -> CalibrationJson:
        """Take the last of that back. Raises: RequestRefused, ConsoleAway."""
        return self._calibration("DELETE", project, params={"accelerator": accelerator})

    def _calibration(self, method: str, project: str, **request: Any) -> CalibrationJson:
        path = f"/api/projects/{quote(project, safe='')}/calibration"
        answer: CalibrationJson = self._send(method, path, **request).json()
        return answer

    def study(self, study_id: str) -> StudyTableJson:
        """Return a sweep: its header as `study`, its runs as `runs`."""
        table: StudyTableJson = self._send("GET", f"/api/studies/{study_id}").json()
        return table

    def run(self, run_id: str) -> RunJson:
        """Return the run's header."""
        header: RunJson = self._send("GET", f"/api/runs/{run_id}").json()
        return header

    def runs(self, q: str, *, sort: str, is_archived: bool, limit: int, project: str | None) -> RunListJson:
        """Return the first runs that a filter finds. Raises: RequestRefused, ConsoleAway."""
        query = {"q": q, "sort": sort, "archived": is_archived, "page_size": limit}
        query |= {"project": project} if project else {}
        page: RunListJson = self._send("GET", "/api/runs", params=query).json()
        return page

    def change_runs(self, body: Mapping[str, object], *, project: str | None) -> RunsChangedJson:
        """Do a verb to many runs, as `POST /api/runs/change` has it. Raises: RequestRefused, ConsoleAway."""
        query = {"project": project} if project else {}
        done: RunsChangedJson = self._send("POST", "/api/runs/change", params=query, json=dict(body)).json()
        return done

    def run_plan(self, run_id: str) -> RunPlanJson:
        """Return a run's plan beside what it measured. Raises: RequestRefused, ConsoleAway."""
        plan: RunPlanJson = self._send("GET", f"/api/runs/{run_id}/plan").json()
        return plan

    def post_mortem(self, run_id: str) -> PostMortemJson | None:
        """Return what of memory a run died, None if it did not die of it. Raises: RequestRefused, ConsoleAway."""
        report: PostMortemJson | None = self._send("GET", f"/api/runs/{run_id}/post-mortem").json()["post_mortem"]
        return report

    def bands(self, project: str, algorithm: str = "") -> list[BandJson]:
        """Return the healthy bands of a project, for runs of an algorithm. Raises: RequestRefused, ConsoleAway."""
        return self._bands("GET", project, params={"algorithm": algorithm})

    def set_bands(self, project: str, bands: Mapping[str, list[float] | None], algorithm: str = "") -> list[BandJson]:
        """Set bands of a project's own, and return all. Raises: RequestRefused, ConsoleAway."""
        return self._bands("PATCH", project, json={"bands": dict(bands), "algorithm": algorithm})

    def _bands(self, method: str, project: str, **request: Any) -> list[BandJson]:
        path = f"/api/projects/{quote(project, safe='')}/bands"
        bands: list[BandJson] = self._send(method, path, **request).json()["bands"]
        return bands

    def stop(self, run_id: str) -> None:
        """Ask the run to stop."""
        self._send("POST", f"/api/runs/{run_id}/stop")

    def resume(self, run_id: str, about: Mapping[str, object]) -> ResumedJson:
        """Start an ended run again, and return the number of its new `attempt` and its header as `run`.

        Raises: RequestRefused, ConsoleAway.
        """
        answer: ResumedJson = self._send("POST", f"/api/runs/{run_id}/resume", json=dict(about)).json()
        return answer

    def live_settings(self, run_id: str) -> LiveSettingsJson:
        """Return the knobs that can change while the run trains. Raises: RequestRefused, ConsoleAway."""
        answer: LiveSettingsJson = self._send("GET", f"/api/runs/{run_id}/knobs").json()
        return answer

    def change_knobs(self, run_id: str, wanted: Mapping[str, object]) -> KnobsChangedJson:
        """Ask a running run to go on with other knobs. Raises: RequestRefused, ConsoleAway."""
        answer: KnobsChangedJson = self._send("POST", f"/api/runs/{run_id}/knobs", json={"knobs": dict(wanted)}).json()
        return answer

    def delete(self, ids: Sequence[str], *, stop: bool, is_dry_run: bool) -> list[DeletionJson]:
        """Move runs to the trash; return what became of each. Raises: RequestRefused, ConsoleAway."""
        body = {"ids": list(ids), "stop": stop, "is_dry_run": is_dry_run}
        done: list[DeletionJson] = self._send("POST", "/api/runs/delete", json=body).json()["runs"]
        return done

    def trash(self, project: str | None = None) -> list[TrashEntryJson]:
        """Return the newest of what is in a project's trash. Raises: RequestRefused, ConsoleAway."""
        query = {"project": project} if project else {}
        entries: list[TrashEntryJson] = self._send("GET", "/api/trash", params=query).json()["entries"]
        return entries

    def restore(self, item: int) -> TrashEntryJson:
        """Take something back out of the trash. Raises: RequestRefused, ConsoleAway."""
        entry: TrashEntryJson = self._send("POST", f"/api/trash/{item}/restore").json()
        return entry

    def purge(self, item: int, *, name: str) -> TrashEntryJson:
        """Delete something in the trash for good; `name` is its run's. Raises: RequestRefused, ConsoleAway."""
        entry: TrashEntryJson = self._send("DELETE", f"/api/trash/{item}", params={"confirm": name}).json()
        return entry

    def profile(self, run_id: str, body: Mapping[str, object]) -> CaptureJson:
        """Ask a running run to record steps and return the capture. Raises: RequestRefused, ConsoleAway."""
        made: CaptureJson = self._send("POST", f"/api/runs/{run_id}/captures", json=dict(body)).json()
        return made

    def captures(self, run_id: str) -> list[CaptureJson]:
        """Return the captures of a run. Raises: RequestRefused, ConsoleAway."""
        rows: list[CaptureJson] = self._send("GET", f"/api/runs/{run_id}/captures").json()["captures"]
        return rows

    def capture(self, run_id: str, capture_id: str) -> CaptureJson:
        """Return a capture."""
        row: CaptureJson = self._send("GET", f"/api/runs/{run_id}/captures/{capture_id}").json()
        return row

    def follow_capture(
        self, run_id: str, capture_id: str, *, tell: Callable[[CaptureJson], None], poll_seconds: float = 1.0
    ) -> CaptureJson:
        """Tell each reading of a capture until it is ready, failed or withdrawn, and return the last; otherwise as
        `follow`.
        """

        def state(capture: CaptureJson) -> str:
            return {"ready": "finished", "withdrawn": "stopped"}.get(capture["state"], capture["state"])

        return _follow(lambda: self.capture(run_id, capture_id), state, tell, poll_seconds)

    def withdraw_capture(self, run_id: str, capture_id: str) -> CaptureJson:
        """Take an armed capture back and return it. Raises: RequestRefused, also if it is not armed; ConsoleAway."""
        address = f"/api/runs/{run_id}/captures/{capture_id}"
        row: CaptureJson = self._send("DELETE", address, params={"state": "armed"}).json()
        return row

    def follow_withdrawal(self, run_id: str, capture_id: str, *, poll_seconds: float = 1.0) -> CaptureJson:
        """Return the capture once it is not armed any more: withdrawn, or begun before; otherwise as `follow`."""

        def state(capture: CaptureJson) -> str:
            return "armed" if capture["state"] == "armed" else "finished"

        return _follow(lambda: self.capture(run_id, capture_id), state, lambda _: None, poll_seconds)

    def save_capture(self, run_id: str, capture_id: str, folder: Path) -> Path:
        """Save a ready capture as a zip in `folder` and return its path; a broken download leaves nothing there.

        Raises: RequestRefused, ConsoleAway; OSError.
        """
        path = folder / Path(f"{run_id}-{capture_id}.zip").name  # the id is what a console told
        part = path.with_suffix(".part")
        address = f"/api/runs/{run_id}/captures/{capture_id}/zip"
        try:
            with self._client.stream("GET", address) as answer, part.open("wb") as file:
                if not answer.is_success:
                    answer.read()
                    raise self._refusal(answer)
                for piece in answer.iter_bytes():
                    file.write(piece)
            part.replace(path)
        except self._failure as error:
            raise self._away(error) from error
        finally:
            part.unlink(missing_ok=True)
        return path

    def announce_trace(self, about: Mapping[str, object], *, project: str | None = None) -> TraceJson:
        """Announce files of a trace and return it with its layers. Raises: RequestRefused, ConsoleAway."""
        query = {"project": project} if project else {}
        made: TraceJson = self._send("POST", "/api/traces", json=dict(about), params=query).json()
        return made

    def send_trace_file(self, trace_id: str, layer_id: int, file: Path) -> None:
        """Send a file of a trace in pieces. Raises: RequestRefused, ConsoleAway; OSError."""
        address = f"/api/traces/{trace_id}/layers/{layer_id}/content"
        with file.open("rb") as source:
            offset = 0
            while piece := source.read(_PIECE_BYTES):
                self._send("PUT", address, params={"offset": offset}, content=piece)
                offset += len(piece)

    def follow_trace(self, trace_id: str, *, tell: Callable[[TraceJson], None], poll_seconds: float = 0.5) -> TraceJson:
        """Tell each reading of a trace until no layer is on its way any more, and return the last; else as `follow`."""

        def read() -> TraceJson:
            row: TraceJson = self._send("GET", f"/api/traces/{trace_id}").json()
            return row

        def state(trace: TraceJson) -> str:
            is_over = all(layer["state"] in ("ready", "failed") for layer in trace["layers"])
            return "finished" if is_over else "running"

        return _follow(read, state, tell, poll_seconds)

    def traces(self, *, project: str | None = None) -> list[TraceJson]:
        """Return the newest traces. Raises: RequestRefused, ConsoleAway."""
        query = {"project": project} if project else {}
        rows: list[TraceJson] = self._send("GET", "/api/traces", params=query).json()["traces"]
        return rows

    def quotas(self) -> list[QuotaJson]:
        """Return all quotas that are set. Raises: RequestRefused, ConsoleAway."""
        rows: list[QuotaJson] = self._send("GET", "/api/quotas").json()["quotas"]
        return rows

    def set_quota(self, owner: str, limits: Mapping[str, object]) -> QuotaJson:
        """Set limits of `project:<slug>` or `person:<name>`. Raises: RequestRefused, ConsoleAway."""
        kind, _colon, name = owner.partition(":")
        where = "projects" if kind == "project" else "people"
        quota: QuotaJson = self._send("PUT", f"/api/quotas/{where}/{quote(name, safe='')}", json=dict(limits)).json()
        return quota

    def retention(self, project: str) -> RetentionJson:
        """Return what ended runs of a project keep. Raises: RequestRefused, ConsoleAway."""
        policy: RetentionJson = self._send("GET", f"/api/projects/{quote(project, safe='')}/retention").json()
        return policy

    def set_retention(self, project: str, rules: Mapping[str, object], *, trash_days: int | None) -> RetentionJson:
        """Set all rules of a project. Raises: RequestRefused, ConsoleAway."""
        body = {"rules": dict(rules), "trash_days": trash_days}
        path = f"/api/projects/{quote(project, safe='')}/retention"
        policy: RetentionJson = self._send("PUT", path, json=body).json()
        return policy

    def preview_retention(self, project: str, rules: Mapping[str, object]) -> RetentionPreviewJson:
        """Return what rules would let go now. Raises: RequestRefused, ConsoleAway."""
        path = f"/api/projects/{quote(project, safe='')}/retention/preview"
        preview: RetentionPreviewJson = self._send("POST", path, json={"rules": dict(rules)}).json()
        return preview

    def checkpoints(self, run_id: str) -> list[CheckpointJson]:
        """Return the checkpoints that the run can go on from, newest first."""
        rows: list[CheckpointJson] = self._send("GET", f"/api/runs/{run_id}/checkpoints").json()["checkpoints"]
        return rows

    def make_model(self, run_id: str, attempt: int, step: int) -> MergeJson:
        """Ask for a model of a checkpoint. Raises: RequestRefused, ConsoleAway."""
        made: MergeJson = self._send("POST", f"/api/runs/{run_id}/checkpoints/{attempt}/{step}/merge", json={}).json()
        return made

    def merges(self, run_id: str) -> list[MergeJson]:
        """Return the models that were asked for of a run's checkpoints, newest first."""
        rows: list[MergeJson] = self._send("GET", f"/api/runs/{run_id}/merges").json()["merges"]
        return rows

    def follow_merge(self, run_id: str, merge_id: int, *, poll_seconds: float = 1.0) -> MergeJson:
        """Return a merge once it is over; otherwise as `follow`."""

        def state(merge: MergeJson) -> str:
            return {"canceled": "stopped"}.get(merge["state"], merge["state"])

        def read() -> MergeJson:
            merge = next((merge for merge in self.merges(run_id) if merge["id"] == merge_id), None)
            if merge is None:
                raise RequestRefused(404, [("", f"{run_id} has no merge {merge_id} any more.")])
            return merge

        return _follow(read, state, lambda _: None, poll_seconds)

    def series(self, run_id: str, names: list[str]) -> list[SeriesJson]:
        """Return the driver's points of the metrics, one line each over all attempts."""
        query = {"metrics": ",".join(names), "points": 10_000, "history": "clean"}
        rows: list[SeriesJson] = self._send("GET", f"/api/runs/{run_id}/series", params=query).json()["series"]
        return [series for series in rows if series["role"] == "driver"]

    def metric_names(self, run_id: str) -> list[str]:
        """Return the names of the driver's metrics."""
        rows: list[MetricJson] = self._send("GET", f"/api/runs/{run_id}/metrics").json()["metrics"]
        return [m["name"] for m in rows if m["kind"] == "metric" and m["role"] == "driver"]

    def follow(self, run_id: str, *, tell: Callable[[RunJson], None], poll_seconds: float = 1.0) -> RunJson:
        """Tell each header until the run has ended, with no retry to come, and return the last.

        A console that restarts is waited for.
        Raises: RequestRefused; ConsoleAway after five minutes without an answer.
        """
        return _follow(lambda: self.run(run_id), _state_of, tell, poll_seconds)

    def follow_study(
        self, study_id: str, *, tell: Callable[[StudyTableJson], None], poll_seconds: float = 1.0
    ) -> StudyTableJson:
        """Tell each reading of a sweep until all its runs have ended, and return the last; otherwise as `follow`."""
        return _follow(lambda: self.study(study_id), lambda table: table["study"]["state"], tell, poll_seconds)

    def _send(self, method: str, path: str, **request: Any) -> "httpx.Response":
        try:
            answer = self._client.request(method, path, **request)
        except self._failure as error:
            raise self._away(error) from error
        if answer.is_success:
            return answer
        raise self._refusal(answer)

    def _away(self, error: "httpx.HTTPError") -> ConsoleAway:
        return ConsoleAway(f"No console answers at {self._client.base_url} ({type(error).__name__}).")

    def _refusal(self, answer: "httpx.Response") -> RequestRefused | ConsoleAway:
        """Return what an answer that is no success means."""
        if answer.status_code >= 500:
            return ConsoleAway(f"The console at {self._client.base_url} answered {answer.status_code}.")
        try:
            problems = [(p["field"], p["message"]) for p in answer.json()["problems"]]
        except (ValueError, KeyError, TypeError):
            return ConsoleAway(f"{self._client.base_url} answered {answer.status_code}, and not as a console does.")
        return RequestRefused(answer.status_code, problems)


def _state_of(header: RunJson) -> str:
    """Return the run's state, or that it is about to start again by itself."""
    retry = header.get("retry")
    return "retrying" if retry and retry["at"] else header["state"]


def _follow(
    read: Callable[[], _Answer], state: Callable[[_Answer], str], tell: Callable[[_Answer], None], poll_seconds: float
) -> _Answer:
    away_since = None
    while True:
        try:
            row = read()
        except ConsoleAway:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > _TRY_AGAIN_SECONDS:
                raise
        else:
            away_since = None
            tell(row)
            if state(row) in ENDED:
                return row
        time.sleep(poll_seconds)
