"""`make docs`: write the pages of the reference, with their tables, into the folder that is named."""

import sys
from pathlib import Path

from console.docs_pages import diagnosis, knobs, rules
from console.docs_pages.doc_page import write_page

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
TABLES = {"knobs": knobs.knob_tables, "rules": rules.rule_tables, "diagnosis": diagnosis.rule_tables}


def main(folder: Path) -> None:
    """Write each page of the reference and print its path."""
    for name, tables in TABLES.items():
        target = folder / f"{name}.md"
        write_page(REFERENCE / target.name, target, tables())
        print(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
