"""What each of OpenRLHF's options that is no knob's flag says here: for whoever looks one up."""

from collections.abc import Iterator, Sequence

from jobs.adapters.adapter import Spelling
from jobs.adapters.openrlhf.own_options import BEFORE, OURS, PROGRAMS, SECTIONS, WHY_OURS, not_offered
from jobs.adapters.openrlhf.values import CLIP, NODES, PER_NODE, PROCESSES
from jobs.catalog.trainer import as_version

_SAYS = {
    "model": ("model.id",),
    "data": ("data.id",),
    "split": ("data.split",),
    "prompt": ("data.prompt_column", "data.messages_column"),
    "answer": ("data.answer_column",),
    "response": ("data.response_column",),
    "chosen": ("data.chosen_column",),
    "rejected": ("data.rejected_column",),
    "eval": ("data.eval_id",),
    "eval_split": ("data.eval_split",),
    "reward_url": ("reward.location", "reward.kind"),
    "reward_model": ("reward.location", "reward.kind"),
    "estimator": ("algorithm",),
    "policy_loss": ("algorithm",),
    "clip": CLIP,
    "run_name": ("name",),
}
_INCLUDE = "--include"


def spellings(version: str) -> Sequence[Spelling]:
    """Return every option of a version, and of versions before the oldest known one, that is no knob's flag."""
    return tuple(dict.fromkeys(_spellings(version)))


def _spellings(version: str) -> Iterator[Spelling]:
    for option in (*SECTIONS, *OURS):
        if as_version(version) >= as_version(option.since):
            yield Spelling(
                name=option.name(version), says=_SAYS.get(option.field, ()), why=WHY_OURS.get(option.field, "")
            )
    for name in (*PER_NODE, _INCLUDE):
        yield Spelling(name=name, says=(PROCESSES,))
    for name in NODES:
        yield Spelling(name=name, why="OpenRLHF fine-tunes on one node here.")
    for program in PROGRAMS:
        for name, why in not_offered(program, version).items():
            yield Spelling(name=name, why=why)
    for name, why in BEFORE.items():
        yield Spelling(name=name, why=why)
