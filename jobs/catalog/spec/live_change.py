"""Knobs that may change while a run trains, and the one check of such a change, for the console and the trainer.

What can change is said by the flag of the run's trainer (`live = true`, jobs.catalog.flag). Standard library only.
"""

from collections.abc import Container, Mapping

from jobs.catalog.knob import Knob, knob_flags, knobs
from jobs.catalog.role import roles_of
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.parse import Problem, SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import KnobValue, RunSpec, to_json
from jobs.catalog.trainer import trainers


def live_knobs(spec: RunSpec) -> Mapping[str, Knob]:
    """Return the knobs, by id, that a run of this spec takes another value of while it trains."""
    trainer = spec.trainer
    with_flags = knob_flags(spec.algorithm, trainer.name, trainer.version)
    return {knob_id: knob for knob_id, (knob, flag) in with_flags.items() if flag.is_live}


def changed_spec(spec: RunSpec, wanted: Mapping[str, object], *, roles: Container[str]) -> RunSpec:
    """Return the spec with these knobs changed while it trains; `roles` are those that its workers were started with.

    Raises: SpecInvalid with a sentence for each knob that cannot change, or not to this value.
    """
    live = live_knobs(spec)
    problems = [
        Problem(field=f"knobs.{knob_id}", message=_fixed(spec, knobs()[knob_id], live))
        for knob_id in wanted
        if knob_id in knobs() and knob_id not in live
    ]
    if problems:
        raise SpecInvalid(problems)
    raw = to_json(spec)
    raw["knobs"] |= {knob_id: {"value": value, "origin": "you"} for knob_id, value in wanted.items()}
    changed = parse_spec(raw)
    for role in roles_of(changed):
        if role.id not in roles:
            asks = [k for k in wanted if role.is_needed(spec.model_copy(update={"knobs": _with(spec, changed, k)}))]
            raise SpecInvalid([_needs_role(changed, knob_id, role.label) for knob_id in asks or wanted])
    return changed


def differing_values(before: RunSpec, after: RunSpec) -> dict[str, tuple[KnobValue, KnobValue]]:
    """Return the knobs whose value is another one: id -> (before, after)."""
    return {
        knob_id: (held, after.knobs[knob_id])
        for knob_id, held in before.knobs.items()
        if held.value != after.knobs[knob_id].value
    }


def _with(spec: RunSpec, changed: RunSpec, knob_id: str) -> dict[str, KnobValue]:
    return {**spec.knobs, knob_id: changed.knobs[knob_id]}


def _fixed(spec: RunSpec, knob: Knob, live: Mapping[str, Knob]) -> Sentence:
    if not live:
        return Sentence(
            "{trainer} takes no changes while it trains. Clone the run to change {label}.",
            trainer=trainers()[spec.trainer.name].called(spec.trainer.version),
            label=Sentence(knob.label),
        )
    return Sentence(
        "{label} cannot change while the run trains. These can: {ids}. Clone the run to change it.",
        label=Sentence(knob.label),
        ids=", ".join(live),
    )


def _needs_role(spec: RunSpec, knob_id: str, role: str) -> Problem:
    text = Sentence(
        "{label} cannot become {value} while the run trains: that needs the role {role}, without which the run was "
        "started. Clone the run to change it.",
        label=Sentence(knobs()[knob_id].label),
        value=spec.knob(knob_id),
        role=Sentence(role),
    )
    return Problem(field=f"knobs.{knob_id}", message=text)
