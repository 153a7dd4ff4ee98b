"""Coarser and coarser pictures of a store, so that a view of everything reads few rows.

Level L counts time in buckets of 2**L ns from the origin. For each row (lane, depth) and bucket that something touches
it keeps how long the row was busy, how many events start, and the name of the longest one. An event is clipped to each
bucket that it crosses. The finest level is as coarse as it may be: below it, a tile touches few enough events that they
are read themselves.
"""

FINEST = 16
"""Buckets of 65.5 us."""
STEP = 2
"""Each level is four times as coarse as the one below."""


def origin(begin: int) -> int:
    """Return the moment from which buckets and tiles are counted: `begin` [Unix ns] rounded down to 18 minutes."""
    return begin >> 40 << 40
