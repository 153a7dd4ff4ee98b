"""The name that OpenRLHF imports."""

from .. import absent

all_gather = absent("all_gather")
