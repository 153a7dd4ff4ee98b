"""`make proof-learning`: every algorithm of the built-in trainer learns the bundled task, over five seeds.

Arguments: algorithms, separated by commas; nothing for all. What a run measured stays in build/proofs/learning/, and
the page is written of all that is there, so one can go on; a run whose spec has changed since is made again.
"""

import signal
import sys
from collections.abc import Sequence

from tests.proofs.learning.budgets import Trial, learned_algorithms, trials
from tests.proofs.learning.report import shortcomings, write_report
from tests.proofs.learning.runs import result_of, run_trial
from tests.ray_head import running_head


def main() -> None:
    """Run what is missing, write the page, and exit with 1 unless every algorithm has shown all that is asked."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended before all was measured."))
    missing = [trial for trial in trials(chosen(sys.argv[1:])) if result_of(trial) is None]
    failed = run_all(missing) if missing else []
    print(write_report())
    wrong = [*failed, *shortcomings()]
    if wrong:
        sys.exit("\n".join(wrong))


def chosen(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the algorithms that are asked for. Raises: SystemExit naming those there are."""
    known = learned_algorithms()
    names = [name for argument in arguments for name in argument.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"There is no algorithm {unknown[0]!r}. There are: {', '.join(known)}.")
    return tuple(name for name in known if name in names) or known


def run_all(missing: Sequence[Trial]) -> list[str]:
    """Run the trials on one Ray head; return a sentence for each that did not get to its end."""
    failed = []
    with running_head() as head:
        for number, trial in enumerate(missing, start=1):
            try:
                found = run_trial(trial, head)
            except AssertionError as error:
                failed.append(f"{trial.name} did not get to its end:\n{error}")
                print(failed[-1], flush=True)
                continue
            shown = "  ".join(f"{name} {old:.3f} -> {new:.3f}" for name, (old, new) in found["measures"].items())
            print(f"{number}/{len(missing)}  {trial.name}  {found['seconds']:.0f} s  {shown}", flush=True)
            write_report()
    return failed


if __name__ == "__main__":
    main()
