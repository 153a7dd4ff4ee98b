"""What the parts of a run's reward must say, each by itself and beside the others."""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RewardPart, RunSpec
from jobs.catalog.trainer import BUILT_IN, trainers

MAX_SOURCE_BYTES = 64 * 1024
TOKEN_PREFIX = "REWARD_"  # noqa: S105  the beginning of a name
"""How names of variables begin that may hold a token: whoever launches must not have other secrets sent anywhere."""
COMPARING = ("math", "exact_match")
"""Kinds that compare with the answer column."""
TESTING = ("code",)
"""Kinds that run what the answer column holds."""
OURS_ALONE = ("judge", "code")
"""Kinds that only the built-in trainer has."""
ASKED = ("url", "judge")
"""Kinds of the built-in trainer that call an address."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TAKEN = ("mean", "std", "shaped", "failed", "failed_fraction", "abandoned_fraction", "penalty", "kl")
"""Names of metrics and of marks on samples that stand beside those of the parts."""
_TOKEN_ENV = re.compile(rf"{TOKEN_PREFIX}[A-Z0-9_]{{1,60}}")
_LOCATED = {
    "file": Sentence("the file"),
    "url": Sentence("the URL"),
    "model": Sentence("the model"),
    "judge": Sentence("the address"),
}

Refuse = Callable[[str, Sentence], None]  # field, sentence


def part_names(parts: Sequence[RewardPart]) -> tuple[str, ...]:
    """Return what charts call each part: its name, or its kind, with a number from the second of one kind on."""
    seen: Counter[str] = Counter()
    names = []
    for part in parts:
        seen[part.kind] += not part.name
        names.append(part.name or (part.kind if seen[part.kind] == 1 else f"{part.kind}_{seen[part.kind]}"))
    return tuple(names)


def check_reward(spec: RunSpec, refuse: Refuse) -> None:
    """Refuse what cannot score, field by field."""
    parts = spec.reward.parts
    for number, part in enumerate(parts):
        _check_part(spec, part, "reward" if number == 0 else f"reward.more.{number - 1}", refuse)
    if spec.is_native:
        _check_mixed(parts, refuse)
    else:
        _check_alone(spec, refuse)


def _check_part(spec: RunSpec, part: RewardPart, field: str, refuse: Refuse) -> None:
    if part.kind in _LOCATED and not part.location.strip():
        refuse(f"{field}.location", Sentence("Name {kind} that scores responses.", kind=_LOCATED[part.kind]))
    elif spec.is_native and part.kind in ASKED and (problem := address_problem(part.location)) is not None:
        refuse(f"{field}.location", problem)
    if part.kind == "custom" and not part.source.strip():
        refuse(
            f"{field}.source",
            Sentence("A custom reward needs its Python file: define reward(prompt, completion, answer) -> float."),
        )
    if len(part.source.encode()) > MAX_SOURCE_BYTES:
        refuse(
            f"{field}.source",
            Sentence(
                "The reward file is larger than {most} KiB. Shorten it or import a package.",
                most=MAX_SOURCE_BYTES // 1024,
            ),
        )
    if part.kind in COMPARING and not spec.data.answer_column.strip():
        refuse(
            "data.answer_column",
            Sentence("The {kind} reward compares with an answer. Name the column that holds it.", kind=part.kind),
        )
    if part.kind in TESTING and not spec.data.answer_column.strip():
        text = Sentence("The {kind} reward runs tests. Name the column that holds them.", kind=part.kind)
        refuse("data.answer_column", text)
    if part.kind == "judge" and spec.is_native:
        _check_judge(spec, part, field, refuse)
    if part.token_env and not _TOKEN_ENV.fullmatch(part.token_env):
        refuse(
            f"{field}.token_env",
            Sentence(
                "{value} cannot hold a reward's token. Use the name of an environment variable of the cluster that "
                "begins with {prefix}: capital letters, digits and _.",
                value=repr(part.token_env),
                prefix=TOKEN_PREFIX,
            ),
        )


def _check_judge(spec: RunSpec, part: RewardPart, field: str, refuse: Refuse) -> None:
    if not str(spec.knob("reward.judge_model") or "").strip():
        refuse("knobs.reward.judge_model", Sentence("Name the model that the judge's address serves."))
    prompt = part.source if part.source.strip() else str(spec.knob("reward.judge_prompt"))
    if "{completion}" not in prompt:
        text = Sentence("The judge's prompt has no {place}, so it would never see a response.", place="{completion}")
        refuse(f"{field}.source" if part.source.strip() else "knobs.reward.judge_prompt", text)


def _check_mixed(parts: Sequence[RewardPart], refuse: Refuse) -> None:
    able = trainers()[BUILT_IN].rewards
    for number, part in enumerate(parts):
        field = "reward" if number == 0 else f"reward.more.{number - 1}"
        if part.kind not in able:
            refuse(
                f"{field}.kind",
                Sentence(
                    "The built-in trainer cannot score by {kind}. Use one of {able}.",
                    kind=part.kind,
                    able=", ".join(able),
                ),
            )
        if part.name and (part.name in _TAKEN or not _NAME.fullmatch(part.name)):
            refuse(
                f"{field}.name",
                Sentence(
                    "{value} cannot name a reward. Use up to 40 small letters, digits and _, a letter first, but none "
                    "of {taken}.",
                    value=repr(part.name),
                    taken=", ".join(_TAKEN),
                ),
            )
        if part_names(parts).count(part_names(parts)[number]) > 1 and number:
            refuse(
                f"{field}.name",
                Sentence("Two rewards are called {name}. Give each its own name.", name=part_names(parts)[number]),
            )
    models = [number for number, part in enumerate(parts) if part.kind == "model"]
    if len(models) > 1:
        refuse(f"reward.more.{models[1] - 1}.kind", Sentence("A run has one reward model. Use another kind here."))
    if all(part.weight == 0 for part in parts):
        refuse("reward.weight", Sentence("Every reward counts 0 times, so nothing is learned. Use another weight."))


def _check_alone(spec: RunSpec, refuse: Refuse) -> None:
    """Refuse what other trainers have no way of being told."""
    label, able = trainers()[spec.trainer.name].label, trainers()[spec.trainer.name].rewards
    if spec.reward.kind in OURS_ALONE:
        text = Sentence(
            "{trainer} cannot score by {kind}. Use one of {able}.",
            trainer=label,
            kind=spec.reward.kind,
            able=", ".join(able),
        )
        refuse("reward.kind", text)
    if spec.reward.more:
        text = Sentence(
            "{trainer} scores by one reward. Remove the others, or mix them in your own file.", trainer=label
        )
        refuse("reward.more", text)
    if spec.reward.weight != 1:
        refuse("reward.weight", Sentence("{trainer} takes no weight of its one reward. Use 1.", trainer=label))
    if spec.reward.token_env:
        refuse("reward.token_env", Sentence("{trainer} sends no token. Leave it empty.", trainer=label))


def address_problem(location: str) -> Sentence | None:
    """Return what is wrong with an address that the cluster is to call, None if nothing is.

    It is http or https, names a host, and holds no user, password or fragment. Link-local addresses, where clouds keep
    the credentials of a machine, are none.
    """
    example = "https://rewards.example.org/score"
    location = location.strip()
    try:
        address = urlsplit(location)
        port = address.port
    except ValueError:
        return Sentence("{value} is no address. Use one such as {example}.", value=repr(location), example=example)
    if address.scheme not in ("http", "https") or not address.hostname or port == 0 or re.search(r"\s", location):
        return Sentence(
            "{value} is not an http or https address. Use one such as {example}.", value=repr(location), example=example
        )
    if address.username is not None or address.password is not None:
        return Sentence(
            "An address with a user or password would be kept in the run's settings. Put a token into an environment "
            "variable of the cluster, and name that."
        )
    if address.fragment:
        return Sentence("{value} has a part behind #, which no server gets. Leave it out.", value=repr(location))
    if _is_link_local(address.hostname):
        return Sentence(
            "{host} is link-local, where clouds keep the credentials of a machine. Use a server's own address.",
            host=address.hostname,
        )
    return None


def _is_link_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_link_local
    except ValueError:
        return host.lower().rstrip(".") in ("metadata.google.internal", "metadata")
