"""A catalogue of a test's own."""

from pathlib import Path

import pytest

from jobs.catalog import tables
from jobs.catalog.knob import knobs
from jobs.catalog.metric import metrics


@pytest.fixture
def other_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is read from now on in place of the catalogue's; what others ask for was read before."""
    knobs()
    metrics()
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    return tmp_path
