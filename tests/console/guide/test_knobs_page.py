"""docs/reference/knobs.md says what the catalogue says."""

from pathlib import Path

from console.docs_pages.knobs import BEGIN, END, knob_tables


def test_the_knob_tables_are_current(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "knobs.md").read_text(encoding="utf-8")

    written = page.partition(BEGIN)[2].partition(END)[0].strip()

    assert written == knob_tables(), "run: python -m console.docs_pages.knobs docs/reference/knobs.md"
