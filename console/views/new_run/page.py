"""The New run page: one form that becomes a RunSpec, what is known of it while it is filled, and the launch."""

import dataclasses
import json
import re
import secrets
from collections.abc import Collection
from itertools import count
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.budget import expensive
from console.forms.new_run.address import set_texts
from console.forms.new_run.commands import commands
from console.forms.new_run.fields import facts_for_script, groups
from console.forms.new_run.form import (
    Combination,
    base_of,
    baseline,
    changes,
    chosen_in,
    default_spec,
    form_to_raw,
    minimal,
    nearest,
    secrets_in,
    show,
    spec_to_form,
    without_secrets,
)
from console.forms.new_run.knob_index import knob_index
from console.forms.new_run.paste import NotRead, read_paste
from console.forms.new_run.probe import PROBE_TAG, probe_of
from console.forms.new_run.recipes import recipe_rows
from console.forms.new_run.trainers import (
    algorithm_choices,
    import_choices,
    scored_by,
    trainer_choices,
    trainers_for_script,
    words_of,
)
from console.session import text_of
from console.trainer_command import command_to_be
from console.views.frame import current_project
from console.views.new_run.clone import cloned_spec
from console.views.new_run.panel import hardware_caption, launch_label, preview_panel, reward_panel, summary_panel
from console.views.new_run.plan import accelerator_choices, plan_answer
from console.views.plan.findings import findings_panel
from jobs.accounts.access import NotAllowed, require
from jobs.accounts.privilege import check_privileged
from jobs.catalog.recipe import UnknownRecipe, recipe
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.parse import Problem, SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_text
from jobs.cluster.ray_api import cluster_state
from jobs.models import Project, Run
from jobs.planner.search.layouts import GOALS
from jobs.preflight.trial_switch import note
from jobs.processes.tasks import enqueue, submit
from jobs.runs.checks import check_launchable, default_device
from jobs.runs.environment import project_variables
from jobs.runs.launch import KeyReused, create_run, default_name, launched_before, parent_of
from jobs.telemetry.attempt_spec import changed_knobs

MAX_IMPORT_BYTES = 1 << 20


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def new_run(request: HttpRequest) -> HttpResponse:
    """Show the form, filled from a run with `?from=`, with knobs changed by `?set=`; a POST launches."""
    project = project_to_launch_in(request)
    if request.method == "POST":
        return _launch(request, project)
    origin, base, notice = _base(request, project)
    values = spec_to_form(base)
    if origin is not None:
        names = Run.objects.filter(project=project).values_list("name", flat=True)
        values["name"] = next_name(origin.name, set(names))
    texts, refused = set_texts(request.GET.getlist("set"), base)
    planned, assumed = _pasted_config(request, values | texts)
    texts |= planned
    notice = " ".join(said for said in (notice, refused, assumed) if said)
    return _page(request, project, base, values | texts, origin=origin, notice=notice, shows="changed" if texts else "")


def _pasted_config(request: HttpRequest, values: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the inputs of a config.json that the address hands on for the plan, and a sentence about it."""
    if not (token := request.GET.get("config", "")):
        return {}, ""
    if (text := text_of(request.session, token)) is None:
        return {}, _("The config.json is not kept any more. Paste it next to the plan.")
    name = values.get(f"model.id.{values.get('model.kind', '')}", "")
    said = _("The plan uses the pasted config.json, but the run would train %(name)s.")
    return {"plan.config": text, "plan.config_of": name}, said % {"name": name}


@require_POST
@expensive
def check(request: HttpRequest) -> JsonResponse:
    """Say what is wrong with the form as it stands, what it asks of the cluster, and how to launch it elsewhere."""
    project = project_to_launch_in(request)
    base = base_of(request.POST.get("base", ""))
    spec, problems = _parsed(request, base)
    if spec is None:
        return JsonResponse({"problems": _plain(problems)})
    state = cluster_state()
    written = commands(spec, url=settings.PUBLIC_URL, project=project.slug)
    findings = findings_panel(spec, state)
    summary = summary_panel(spec, state, project=project, user=request.user)
    started = command_to_be(spec, device=state.device)
    problems = check_privileged(spec, project, request.user)
    if started.problem:
        problems.append(Problem(field="trainer.name", message=started.problem))
    return JsonResponse(
        {
            "problems": _plain(problems),
            "summary": render_to_string("new_run/summary.html", {"panel": summary}, request),
            "findings": render_to_string("new_run/findings.html", {"panel": findings}, request),
            "blocking": [item.message for item in findings.blocking],
            "launch": launch_label(spec, state),
            "hardware": hardware_caption(state),
            "changed": [name for name, _was in changes(spec, base)],
            "commands": {**dataclasses.asdict(written), "trainer": started.shown, "script": started.shell},
            "full": to_text(spec),
            "plan": plan_answer(request, spec, project, state),
        }
    )


@require_POST
def knobs(request: HttpRequest) -> JsonResponse:
    """Return the groups of the combination that the form names, where they start; nothing that is typed is read."""
    project_to_launch_in(request)
    base = base_of(request.POST.get("base", ""))
    named = chosen_in({name: str(text) for name, text in request.POST.items()}, base)
    chosen = nearest(algorithm=named.algorithm, trainer=named.trainer, version=named.version, device=named.device)
    return JsonResponse(groups_answer(request, base, chosen))


@require_GET
def index(request: HttpRequest) -> JsonResponse:
    """Return all that is known of every knob and field, for the search and the help of the page."""
    project_to_launch_in(request)
    return JsonResponse(knob_index())


def base_text(base: RunSpec) -> str:
    """Return what a form carries of the spec it is read against."""
    return json.dumps(minimal(base), ensure_ascii=False)


def groups_answer(request: HttpRequest, base: RunSpec, chosen: Combination) -> dict[str, object]:
    """Return what the page needs to show another combination: the groups and what to know of their inputs."""
    shown = groups(start_texts(base, chosen), chosen)
    return {
        "html": render_to_string("new_run/groups.html", {"groups": shown}, request),
        "facts": facts_for_script(shown, base, chosen),
    }


def start_texts(base: RunSpec, chosen: Combination) -> dict[str, str]:
    """Return the texts that the inputs of a combination start with."""
    begun = {f"knobs.{name}": show(value["value"]) for name, value in baseline(base, chosen).items()}
    return {name: text for name, text in spec_to_form(base).items() if not name.startswith("knobs.")} | begun


@require_POST
@expensive
def preview(request: HttpRequest) -> JsonResponse:
    """Try data and model: rendered samples, lengths, the model's facts, and the checks they pass."""
    project = project_to_launch_in(request)
    spec, problems = _parsed(request, base_of(request.POST.get("base", "")))
    if spec is None:
        return JsonResponse({"problems": _plain(problems)}, status=422)
    panel = preview_panel(spec, project=project, state=cluster_state())
    return JsonResponse(
        {
            "problems": [{"field": c.field, "message": c.text} for c in panel.failed],
            "html": render_to_string("new_run/preview.html", {"panel": panel}, request),
            "columns": panel.data.columns if panel.data else [],
            "recognized": panel.data.recognized if panel.data else {},
            "captions": {"model.id": panel.model_caption, "data.id": panel.data_caption},
        }
    )


@require_POST
@expensive
def reward(request: HttpRequest) -> JsonResponse:
    """Try the reward on a few completions."""
    project = project_to_launch_in(request)
    spec, problems = _parsed(request, base_of(request.POST.get("base", "")))
    if spec is None:
        return JsonResponse({"problems": _plain(problems)}, status=422)
    panel = reward_panel(spec, project=project, user=request.user)
    return JsonResponse(
        {
            "problems": [{"field": panel.field, "message": panel.problem}] if panel.problem else [],
            "html": render_to_string("new_run/reward.html", {"panel": panel}, request),
        }
    )


@require_POST
def read_import(request: HttpRequest) -> JsonResponse:
    """Return the inputs' texts of what was pasted: a spec as JSON, a trainer's command or config; or why it is none."""
    project_to_launch_in(request)
    text = request.POST.get("text", "")
    if len(text.encode()) > MAX_IMPORT_BYTES:
        message = _("That is larger than 1 MiB. A run spec is a few KiB.")
        return JsonResponse({"problems": [{"field": "", "message": message}]}, status=422)
    try:
        pasted = read_paste(text)
    except SpecInvalid as error:
        return JsonResponse({"problems": _plain(error.problems)}, status=422)
    except NotRead as error:
        return JsonResponse({"problems": [{"field": "", "message": in_words(sentence_of(error), _)}]}, status=422)
    report = render_to_string("new_run/pasted.html", {"pasted": pasted}, request) if pasted.trainer else ""
    return JsonResponse({"values": spec_to_form(pasted.spec), "report": report})


@require_GET
def read_recipe(request: HttpRequest) -> JsonResponse:
    """Return the inputs' texts of a recipe, and the base to read them against: values that stay are the recipe's."""
    project_to_launch_in(request)
    try:
        chosen = recipe(request.GET.get("id", ""))
    except UnknownRecipe as error:
        raise Http404(str(error)) from error
    return JsonResponse({"values": spec_to_form(chosen.spec) | {"base": base_text(chosen.spec)}})


def next_name(name: str, taken: Collection[str] = ()) -> str:
    """Return a name for a clone that is not `taken`: the number at the end counts on, or begins with 2."""
    end = re.search(r"\d+$", name)
    stem, digits = (name[: end.start()], end[0]) if end else (f"{name} ", "1")
    names = ((stem + str(number).zfill(len(digits)))[-120:] for number in count(int(digits) + 1))
    return next(each for each in names if each not in taken)


def _launch(request: HttpRequest, project: Project) -> HttpResponse:
    base = base_of(request.POST.get("base", ""))
    spec, problems = _parsed(request, base)
    key = request.POST.get("idempotency_key", "")
    secret_values = secrets_in(request.POST, spec) if spec is not None else {}
    tags: tuple[str, ...] = ()
    if spec is not None and request.POST.get("probe"):
        tags = (PROBE_TAG,)
        try:
            spec = probe_of(spec, spec.name or default_name(spec))
        except SpecInvalid as error:
            spec, problems = None, list(error.problems)
    if spec is not None:
        is_repeated = launched_before(project=project, idempotency_key=key)
        problems = [] if is_repeated else check_launchable(spec, project, request.user, secrets=secret_values)
    if spec is None or problems:
        return _refused(request, project, base, problems)
    try:
        user = cast(AbstractBaseUser, request.user)  # only members come this far
        run, is_new = create_run(
            project=project,
            spec=spec,
            user=user,
            idempotency_key=key or None,
            now=timezone.now(),
            tags=tags,
            secrets=secret_values,
            parent=parent_of(project, request.POST.get("parent", "")),
        )
    except KeyReused:
        text = _("This page has already launched another run. Reload it to launch one more; your draft is kept.")
        return _refused(request, project, base, [Problem(field="", message=text)])
    if is_new:
        enqueue(submit, run_id=run.pk)
    url = reverse("run", args=[run.pk])
    return JsonResponse({"url": url}, status=201) if _wants_json(request) else redirect(url)


def _refused(request: HttpRequest, project: Project, base: RunSpec, problems: list[Problem]) -> HttpResponse:
    if _wants_json(request):
        return JsonResponse({"problems": _plain(problems)}, status=422)
    values = spec_to_form(base) | without_secrets(request.POST)
    return _page(request, project, base, values, problems=problems, status=422)


def _page(
    request: HttpRequest,
    project: Project,
    base: RunSpec,
    values: dict[str, str],
    *,
    origin: Run | None = None,
    notice: str = "",
    problems: list[Problem] | None = None,
    shows: str = "",
    status: int = 200,
) -> HttpResponse:
    named = chosen_in(values, base)
    chosen = nearest(algorithm=named.algorithm, trainer=named.trainer, version=named.version, device=named.device)
    values = values | {"algorithm": chosen.algorithm, "trainer.name": chosen.trainer, "trainer.version": chosen.version}
    shown = groups(values, chosen)
    context = {
        "project": project,
        "origin": origin,
        "parent": origin.pk if origin is not None else request.POST.get("parent", ""),
        "has_changed": origin is not None and bool(changed_knobs([origin.pk])),
        "notice": notice,
        "values": values,
        "by": nested(values),
        "groups": shown,
        "base_text": base_text(base),
        "recipes": recipe_rows(),
        "trainers": trainer_choices(),
        "algorithms": algorithm_choices(chosen),
        "words": words_of(chosen),
        "imports": import_choices(),
        "scored_by_url": scored_by("url"),
        "key": request.POST.get("idempotency_key") or secrets.token_urlsafe(24),
        "max_upload_bytes": settings.MAX_UPLOAD_BYTES,
        "accelerators": accelerator_choices(),
        "trial_note": note(project, request.user),
        "goals": [(goal, _(label)) for goal, label in GOALS.items()],
        "script": {
            **facts_for_script(shown, base, chosen),
            **trainers_for_script(),
            "problems": _plain(problems or []),
            "origin": origin.pk if origin else "",
            "upload_name": "",
            "shows": shows,
            "secrets": [each.name for each in project_variables(project) if each.is_secret],
        },
    }
    return render(request, "new_run/new_run.html", context, status=status)


def _base(request: HttpRequest, project: Project) -> tuple[Run | None, RunSpec, str]:
    """Return the run to clone, if one is asked for, the spec to start from, and what to say about it."""
    source = request.GET.get("from", "")
    if named := request.GET.get("recipe", ""):
        try:
            return None, recipe(named).spec, ""
        except UnknownRecipe as error:
            return None, default_spec(), str(error)
    if not source:
        names = ("algorithm", "trainer", "version")
        chosen = nearest(**{name: request.GET.get(name, "") for name in names})
        device = default_device(cluster_state())
        return None, default_spec(chosen.algorithm, chosen.trainer, chosen.version, device), ""
    origin = Run.objects.filter(pk=source, project=project, trashed_at=None).first()
    if origin is None:
        raise Http404(_("There is no run %(id)s in this project.") % {"id": source})
    try:
        return origin, *cloned_spec(origin, uses_launch=request.GET.get("values") == "launch")
    except SpecInvalid as error:
        notice = _("The spec of %(id)s is from another version and does not hold here, so this form is fresh: %(why)s")
        return None, default_spec(), notice % {"id": source, "why": error}


def project_to_launch_in(request: HttpRequest) -> Project:
    """Return the project people look at; launching and trying, which run their code, need an editor."""
    project = current_project(request)
    if project is None:
        raise Http404(_("You are not a member of any project. Ask an admin to add you."))
    try:
        require(request.user, project, "editor")
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    return project


def _parsed(request: HttpRequest, base: RunSpec) -> tuple[RunSpec | None, list[Problem]]:
    try:
        return parse_spec(form_to_raw({k: str(v) for k, v in request.POST.items()}, base)), []
    except SpecInvalid as error:
        return None, list(error.problems)


def _plain(problems: Any) -> list[dict[str, str]]:
    return [{"field": p.field, "message": in_words(p.message, _)} for p in problems]


def nested(values: dict[str, str]) -> dict[str, object]:
    """Return dotted names as objects in objects, for templates: `by.data.id.path`."""
    tree: dict[str, object] = {}
    for name, text in values.items():
        here = tree
        *parents, last = name.split(".")
        for parent in parents:
            nxt = here.setdefault(parent, {})
            here = nxt if isinstance(nxt, dict) else here
        here[last] = text
    return tree


def _wants_json(request: HttpRequest) -> bool:
    return request.headers.get("Accept", "").startswith("application/json")


urlpatterns: list[URLPattern] = [
    path("runs/new", new_run, name="new-run"),
    path("runs/new/knobs", knobs, name="new-run-knobs"),
    path("runs/new/index", index, name="new-run-index"),
    path("runs/new/check", check, name="new-run-check"),
    path("runs/new/preview", preview, name="new-run-preview"),
    path("runs/new/reward", reward, name="new-run-reward"),
    path("runs/new/recipe", read_recipe, name="new-run-recipe"),
    path("runs/new/import", read_import, name="new-run-import"),
]
