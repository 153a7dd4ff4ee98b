"""What people call the terms of memory."""

from collections.abc import Mapping

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from jobs.planner.result import Term

TERM_WORDS: Mapping[Term, Promise] = {
    "weights": gettext_lazy("Weights"),
    "gradients": gettext_lazy("Gradients"),
    "optimizer": gettext_lazy("Optimizer"),
    "kv_cache": gettext_lazy("KV cache"),
    "activations": gettext_lazy("Activations"),
    "logits": gettext_lazy("Logits"),
    "graphs": gettext_lazy("CUDA graphs"),
    "overhead": gettext_lazy("Runtime + reserve"),
}
