"""The tab Diagnosis of a trace: what every rule says of its files, and of the run around them."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.views.run.diagnosis import questions
from console.views.traces.page import page_of, unanswered, visible_trace
from jobs.diagnosis.rules import diagnose_trace
from jobs.traces.files import NoAnswer


@require_GET
@expensive
def trace_diagnosis(request: HttpRequest, trace_id: str) -> HttpResponse:
    """Show what the rules say by now; a file that is imported later may change it."""
    trace, held = visible_trace(request, trace_id)
    context = page_of(trace, held, tab="diagnosis")
    try:
        diagnosis = diagnose_trace(trace)
    except NoAnswer as error:
        return unanswered(request, trace, context, error)
    context["questions"] = questions(diagnosis.findings, run=trace.run, trace=trace)
    context["diagnosis"] = diagnosis
    return render(request, "trace/diagnosis.html", context)


urlpatterns: list[URLPattern] = [
    path("traces/<slug:trace_id>/diagnosis", trace_diagnosis, name="trace-diagnosis"),
]
