"""The page of one run: its tabs, and the files that it left."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path, register_converter, reverse
from django.urls.converters import StringConverter
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.downloads.kept import keep_download
from console.forms.new_run.commands import commands
from console.labels.catalog import metric_words, phase_label
from console.trainer_command import TrainerCommand, command_of
from console.views.frame import person
from console.views.run.charts import overview_charts, overview_chips
from console.views.run.config import config_rows, num_changed
from console.views.run.files import run_file, run_log, visible_run
from console.views.run.labels import (
    engine_note,
    phase_note,
    process_note,
    resume_note,
    resume_refusal,
    sample_note,
    untold,
)
from console.views.run.origin import origin_of
from jobs.accounts.access import allows
from jobs.captures.choices import USUAL, WORDS
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_text
from jobs.cluster.ray_api import is_local
from jobs.diagnosis.bands import bands_of
from jobs.models import Run, RunWatch
from jobs.runs.live_changes import live_settings
from jobs.runs.merges import why_no_model
from jobs.runs.queries import run_header
from jobs.runs.stored_sentences import say_cause
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.telemetry.trashed import hidden_through
from profiling.counted import counted
from profiling.phases import PHASES

TABS = ("overview", "charts", "dashboard", "timeline", "profile", "samples", "logs", "system", "config", "files")


class _TabConverter(StringConverter):
    """The tabs that have an address of their own; the overview is the run's own address."""

    regex = "|".join(tab for tab in TABS if tab != "overview")


class _RunIdConverter(StringConverter):
    """Run ids as jobs.models makes them, so that `runs/new` is no run."""

    regex = r"r-[0-9a-z]+"


register_converter(_TabConverter, "tab")
register_converter(_RunIdConverter, "run_id")


@require_GET
def run(request: HttpRequest, run_id: str, tab: str = "overview") -> HttpResponse:
    """Show a run; every tab is the same page, opened at another place."""
    row, role = visible_run(request, run_id)
    spec = parse_spec(latest_spec_json(row))
    can_edit = allows(role, "editor")
    context = {
        "run": row,
        "project": row.project,
        "header": run_header(row),
        "spec": spec,
        "spec_text": to_text(spec),
        "facts": facts(row, spec),
        "tab": tab,
        "tabs": _tabs(row, spec),
        "cause": {**say_cause(row.cause), "where": cause_place(row.cause), "log_line": unsaid_line(row.cause)},
        "trainer_command": _trainer_command(row, spec) if tab == "config" else None,
        "origin": origin_of(row, spec) if tab == "config" else None,
        "commands": commands(spec, url=settings.PUBLIC_URL, project=row.project.slug),
        "tensorboard_command": f"tensorboard --logdir {settings.RUN_ROOT}/{tensorboard_folder(row)}",
        "is_ray_local": is_local(),
        "charts": overview_charts(spec),
        "chips": overview_chips(spec),
        "phases": PHASES,
        "phase_note": phase_note(spec),
        "sample_note": sample_note(spec),
        "sample_limits": "" if sample_note(spec) else untold(spec, "samples"),
        "engine_note": engine_note(spec),
        "process_note": process_note(spec),
        "rows": config_rows(spec, live_settings(row).changes),
        "num_changed": num_changed(spec),
        "can_edit": can_edit,
        "reads_audit": allows(role, "admin"),
        "is_watched": RunWatch.objects.filter(run=row, user=person(request)).exists(),
        "resume_note": resume_note(spec),
        "resume_refusal": resume_refusal(spec, row.project, request.user) if can_edit else "",
        "page": page_data(row, spec, tab, can_edit, allows(role, "admin")),
        "whats": WORDS.items(),
        "usual_what": USUAL,
        "states": ("queued", "starting", "running", "stopping", "finished", "failed", "stopped", "lost"),
    }
    return render(request, "run/run.html", context)


def _trainer_command(run: Run, spec: RunSpec) -> TrainerCommand | None:
    attempt = run.attempts.filter(number=run.latest_attempt).first()
    return command_of(spec, attempt) if attempt is not None else None


@require_GET
def run_spec(request: HttpRequest, run_id: str) -> HttpResponse:
    """Give the run's spec as a JSON file: what launches the same run again."""
    row, _role = visible_run(request, run_id)
    answer = HttpResponse(to_text(parse_spec(latest_spec_json(row))), content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="{row.pk}.json"'
    keep_download(request, "run", row.pk, f"{row.pk}.json")
    return answer


def cause_place(cause: Mapping[str, Any]) -> str:
    """Return where a run failed: side, role and rank, step."""
    if not cause:
        return ""
    sides = {"trainer": _("Trainer"), "cluster": _("Cluster"), "pitwall": _("Pitwall"), "user": _("User")}
    parts = [sides.get(cause.get("side", ""), _("Unknown side"))]
    if role := cause.get("role"):
        parts.append(role if role == "driver" else f"{role} {cause.get('rank') or 0}")
    if isinstance(step := cause.get("step"), int) and step >= 0:
        parts.append(_("step %(n)s") % {"n": step})
    return ", ".join(parts) + ":"


def unsaid_line(cause: Mapping[str, Any]) -> str:
    """Return the log line of a cause; "" where it only repeats the sentence: "pkg.Error: it was killed"."""
    line = str(cause.get("log_line") or "")
    message = re.sub(r"^[\w.]+: ", "", line)
    return "" if message in str(cause.get("text") or "") else line


def facts(run: Run, spec: RunSpec) -> list[str]:
    """Return what the run is, in a few words each: algorithm, trainer, model, data, resources, author."""
    short = spec.model.id.rstrip("/").rpartition("/")[2]
    data = spec.data.id.rstrip("/").rpartition("/")[2] if spec.data.kind != "upload" else _("uploaded data")
    trainer = f"{spec.trainer.name} {spec.trainer.version}".rstrip()
    words = [spec.algorithm.upper(), trainer, short, data, resources(run, spec)]
    if run.created_by is not None:
        words.append(_("by %(name)s") % {"name": run.created_by.get_username()})
    return words


def tensorboard_folder(run: Run) -> str:
    """Return where TensorBoard finds the run below the run root: its one attempt, or all of several side by side."""
    return f"{run.pk}/a1/tb" if run.latest_attempt == 1 else run.pk


def resources(run: Run, spec: RunSpec) -> str:
    """Return what the run takes of the cluster."""
    attempt = run.attempts.filter(number=run.latest_attempt).first()
    if attempt is not None and attempt.num_gpus:
        return f"{attempt.num_gpus:g} × GPU"
    return (
        f"{attempt.num_cpus:g} × CPU" if attempt is not None else counted(_("%(n)s workers") % {"n": spec.num_workers})
    )


def page_data(run: Run, spec: RunSpec, tab: str, can_edit: bool, is_admin: bool) -> dict[str, object]:
    """Return what the page's modules need, JSON-able."""
    return {
        "id": run.pk,
        "project": run.project.slug,
        "tab": tab,
        "url": reverse("run", args=[run.pk]),
        "api": f"/api/runs/{run.pk}",
        "canEdit": can_edit,
        "isAdmin": is_admin,
        "isNative": spec.is_native,
        "hasAnswers": not is_in(spec.algorithm, "scalar"),  # a reward model scores responses and gives none
        "whyNoModel": why_no_model(spec),
        "sampleNote": sample_note(spec),
        "stopNote": untold(spec, "stop"),
        "algorithm": spec.algorithm,
        "numSteps": spec.num_steps,
        "color": run.color,
        "checkpointEvery": spec.int_knob("checkpoint.every_steps"),
        "header": json.loads(json.dumps(dataclasses.asdict(run_header(run)), default=str)),
        "phases": [{"key": phase.key, "label": phase_label(phase.key), "token": phase.token} for phase in PHASES],
        "metrics": metric_words(),
        "bands": {
            name: [band.low, band.high]
            for name, band in bands_of(run.project, spec.algorithm).items()
            if band.low is not None and band.high is not None
        },
        "charts": [dataclasses.asdict(plan) for plan in overview_charts(spec)],
        "chips": [dataclasses.asdict(chip) for chip in overview_chips(spec)],
    }


def _tabs(run: Run, spec: RunSpec) -> list[dict[str, object]]:
    words = {
        "overview": _("Overview"),
        "charts": _("Charts"),
        "dashboard": _("Dashboard"),
        "timeline": _("Timeline"),
        "profile": _("Profile"),
        "samples": _("Samples"),
        "logs": _("Logs"),
        "system": _("System"),
        "config": _("Config"),
        "files": _("Files"),
    }
    num_samples = run.sample_set.filter(attempt__gt=hidden_through(run.pk, "samples")).count()
    counts = {
        "charts": run.metrics.exclude(kind="span").values("name").distinct().count() or "",
        "profile": run.captures.count() or "",
        "samples": f"{num_samples:,}" if num_samples else "",
        "config": _("%(n)s changed") % {"n": num_changed(spec)} if num_changed(spec) else "",
        "files": run.artifacts.count() or "",
    }
    own = reverse("run", args=[run.pk])
    return [
        {
            "name": name,
            "label": words[name],
            "url": own if name == "overview" else reverse("run", args=[run.pk, name]),
            "count": counts.get(name, ""),
        }
        for name in TABS
    ]


urlpatterns: list[URLPattern] = [
    path("runs/<run_id:run_id>", run, name="run"),
    path("runs/<run_id:run_id>/<tab:tab>", run, name="run"),
    path("runs/<run_id:run_id>/spec.json", run_spec, name="run-spec"),
    path("runs/<run_id:run_id>/files/<int:artifact_id>", run_file, name="run-file"),
    path("runs/<run_id:run_id>/log.txt", run_log, name="run-log"),
]
