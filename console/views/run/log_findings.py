"""What stands out in a run's log, above its lines: the first error, and kinds of errors and warnings."""

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.middleware.caller_gone import check_caller
from console.views.run.files import visible_run
from jobs.accounts.access import allows
from jobs.diagnosis.log_findings import KindOfLine, log_findings


@require_GET
@expensive
def findings_card(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show what stands out; nothing where there is no error and no warning."""
    run, role = visible_run(request, run_id)
    findings = log_findings(run, check=partial(check_caller, request))
    context = {
        "run": run,
        "project": run.project,
        "found": findings,
        "kinds": [(kind, _name(kind), [_(remedy) for remedy in kind.remedies]) for kind in findings.kinds],
        "num_errors": sum(kind.level == "error" for kind in findings.kinds),
        "is_admin": allows(role, "admin"),
    }
    return render(request, "run/log_findings.html", context)


def _name(kind: KindOfLine) -> str:
    """Return what the kind is called: a symptom in the reader's language, a project's own rule as it was written."""
    return _(kind.label) if kind.symptom_id else kind.label


urlpatterns: list[URLPattern] = [
    path("runs/<run_id:run_id>/log-findings", findings_card, name="run-log-findings"),
]
