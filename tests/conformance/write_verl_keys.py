"""Write jobs/adapters/verl/known_keys/verl-*.json anew: `.venv/bin/python -m tests.conformance.write_verl_keys`.

From the wheels of requirements/frameworks.txt, composed by Hydra. Run it when a version of verl is added.
"""

import json
from pathlib import Path
from typing import Any

from jobs.catalog.trainer import as_version, trainers
from tests.conformance.hydra_compose import ComposedConfig, Composer
from tests.conformance.unpacked_wheels import unpacked

FOLDER = Path(__file__).resolve().parents[2] / "jobs" / "adapters" / "verl" / "known_keys"
VERSIONS = trainers()["verl"].versions


def tables(version: str) -> dict[str, dict[str, Any]]:
    """Return the tables of a version's file."""
    composer = Composer(unpacked(f"verl-{version}"))
    rl, megatron = composer.compose("main_ppo", []).values, megatron_of(composer, version).values
    return {
        "main_ppo": rl,
        "main_ppo/megatron": {key: value for key, value in megatron.items() if key not in rl},
        "main_ppo/megatron lacks": {key: None for key in rl if key not in megatron},
        "sft_trainer": composer.compose("sft_trainer", []).values,
    }


def megatron_of(composer: Composer, version: str) -> ComposedConfig:
    """Return the composition with Megatron as the training engine."""
    return composer.compose("main_ppo", engine_words(version, "megatron"))


def engine_words(version: str, engine: str) -> list[str]:
    """Return the words that choose a training engine: Megatron once had a config of its own."""
    if as_version(version) < as_version("0.8.0"):
        return ["--config-name=ppo_megatron_trainer"] if engine == "megatron" else []
    return [f"model_engine={engine}"] if engine else []


def text(version: str) -> str:
    """Return a version's file."""
    return json.dumps(tables(version), indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write every file."""
    for version in VERSIONS:
        path = FOLDER / f"verl-{version}.json"
        path.write_text(text(version), encoding="utf-8")
        print(f"{path.name}: {len(tables(version)['main_ppo'])} keys")


if __name__ == "__main__":
    main()
