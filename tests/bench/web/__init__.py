"""Pages at full size in Chromium, with gates: `make bench-web`. A file of `cases/` is one case (see `case.py`)."""
