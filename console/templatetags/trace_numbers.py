"""Times of traces in templates."""

from typing import Any

from django import template
from django.utils.translation import gettext_lazy

from console.labels import traces as trace_words

register = template.Library()

MEMORY_WORDS = {
    "allocated": gettext_lazy("Allocated"),
    "reserved": gettext_lazy("Reserved"),
    "weights": gettext_lazy("Weights"),
    "gradients": gettext_lazy("Gradients"),
    "optimizer": gettext_lazy("Optimizer"),
    "activations": gettext_lazy("Activations"),
    "inputs": gettext_lazy("Inputs"),
    "temporary": gettext_lazy("Temporary"),
    "autograd": gettext_lazy("Autograd's own"),
    "unknown": gettext_lazy("Not known"),
}


@register.filter
def time_text(ns: Any) -> str:
    """Write a time in ns in the unit that suits it; a missing one as a dash."""
    return trace_words.time_text(ns)


@register.filter
def shown_length(summary: Any) -> str:
    """Write how long the window of a summary is."""
    return trace_words.time_text(summary.end - summary.begin)


@register.filter
def asked_length(summary: Any) -> str:
    """Write how long the window is that was asked for, of which a summary may be a part."""
    return trace_words.time_text(summary.asked_end - summary.begin)


@register.filter
def memory_word(name: str) -> Any:
    """Return what a kind of memory is called."""
    return MEMORY_WORDS.get(name, name)
