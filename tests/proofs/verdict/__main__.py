"""`make proof-verdict`: what Compare says of identical pairs, of planted differences and of busy nodes.

It becomes docs/proofs/verdict.md; exit code 1 where more than 5 % of identical pairs are told apart. With the argument
`record` the demos are run first, which takes five minutes on two cores that do nothing else; without it, recorded runs
are read.
"""

import os
import sys

import django


def main() -> None:
    """Judge the pairs, write the report, and say whether the promise is kept."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    from tests.proofs.verdict import corpus, record, report
    from tests.proofs.verdict.judge import judge

    if sys.argv[1:] == ["record"]:
        corpus.save(record.record())
    found = judge(num_pairs=200)
    print(report.write(found))
    sys.exit(0 if found.is_kept else 1)


if __name__ == "__main__":
    main()
