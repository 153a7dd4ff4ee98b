"""The name that OpenRLHF imports."""

from ..absent import absent

all_gather = absent("all_gather")
