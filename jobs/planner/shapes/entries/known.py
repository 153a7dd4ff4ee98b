"""All families that are known, and the model types that are refused with the reason."""

from collections.abc import Mapping

from jobs.planner.shapes.entries.classic import CLASSIC
from jobs.planner.shapes.entries.deepseek_v4 import DEEPSEEK_V4
from jobs.planner.shapes.entries.dense import DENSE, GENERIC
from jobs.planner.shapes.entries.experts import EXPERTS
from jobs.planner.shapes.entries.gemma import GEMMA
from jobs.planner.shapes.entries.hybrid import HYBRID
from jobs.planner.shapes.entries.refused import REFUSED
from jobs.planner.shapes.families import Family

__all__ = ["FAMILIES", "GENERIC", "REFUSED"]

FAMILIES: Mapping[str, Family] = {"deepseek_v4": DEEPSEEK_V4, **CLASSIC, **DENSE, **EXPERTS, **GEMMA, **HYBRID}
