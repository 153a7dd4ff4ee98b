"""verl's own configuration, composed by the real Hydra from the YAML files of the wheel. Imports nothing of verl.

`Composer.compose` is what `python -m verl.trainer.main_ppo` does before its first line runs. `quick` starts from the
same composition, made once, and applies the overrides with Hydra's own function: the same answer, without reading the
twenty files of the config again. It is used where hundreds of commands are held against the config.
"""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONFIGS = {"main_ppo": "ppo_trainer", "sft_trainer": "sft_trainer_engine", "sft_trainer_ray": "sft_trainer_engine"}
OPTION = "--config-name="
GROUPS = ("model_engine", "engine", "optim", "model", "profiler")  # overrides of these choose files, not values


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedConfig:
    """What Hydra made of overrides: `text` says why not, `values` are the leaves by dotted key, resolved."""

    is_accepted: bool
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


class Composer:
    """The config folder of one unpacked wheel."""

    def __init__(self, wheel: Path) -> None:
        self.folder = wheel / "verl" / "trainer" / "config"
        self.bases: dict[tuple[str, ...], DictConfig] = {}
        self.parser = OverridesParser.create()

    def compose(self, program: str, overrides: list[str]) -> ComposedConfig:
        """Return what the program's config is with these overrides, read from the files."""
        try:
            return _leaves(self._from_files(CONFIGS[program], overrides))
        except (HydraException, OmegaConfBaseException) as error:
            return ComposedConfig(is_accepted=False, text=str(error))

    def quick(self, program: str, overrides: list[str]) -> ComposedConfig:
        """Return the same as `compose`, from a composition made before; `values` are those of its keys."""
        try:
            parsed = self.parser.parse_overrides([o for o in overrides if not o.startswith("--")])
            groups = [o.input_line or "" for o in parsed if o.key_or_group in GROUPS]
            groups += [o for o in overrides if o.startswith(OPTION)]
            start = (CONFIGS[program], *groups)
            if start not in self.bases:
                self.bases[start] = self._from_files(CONFIGS[program], groups)
            config = copy.deepcopy(self.bases[start])
            chosen = [o for o in parsed if _is_value(o)]
            ConfigLoaderImpl._apply_overrides_to_config(chosen, config)
            return ComposedConfig(
                is_accepted=True,
                values={o.key_or_group: _plain(OmegaConf.select(config, o.key_or_group)) for o in chosen},
            )
        except (HydraException, OmegaConfBaseException) as error:
            return ComposedConfig(is_accepted=False, text=str(error))

    def _from_files(self, name: str, overrides: list[str]) -> DictConfig:
        name = next((o.removeprefix(OPTION) for o in overrides if o.startswith(OPTION)), name)
        overrides = [override for override in overrides if not override.startswith("--")]
        with initialize_config_dir(config_dir=str(self.folder), version_base=None):
            return compose(name, overrides=overrides)


def words(argv: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the program of a command of ours, and its overrides."""
    place = max(n for n, word in enumerate(argv) if word.startswith("verl.trainer."))
    return argv[place].removeprefix("verl.trainer."), list(argv[place + 1 :])


def _is_value(override: Override) -> bool:
    return override.key_or_group not in GROUPS and not override.key_or_group.startswith("hydra.")


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _leaves(config: DictConfig) -> ComposedConfig:
    missing = tuple(sorted(OmegaConf.missing_keys(config)))
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return ComposedConfig(is_accepted=True, values=dict(_flat(plain, "")), missing=missing)


def _flat(table: dict[Any, Any], prefix: str) -> list[tuple[str, Any]]:
    found = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            found += _flat(value, f"{name}.")
        elif not name.endswith("_target_"):
            found.append((name, value))
    return found
