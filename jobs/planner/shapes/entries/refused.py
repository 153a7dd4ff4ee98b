"""Model types that transformers has and that are not counted here, each with the reason."""

from collections.abc import Mapping

REFUSED: Mapping[str, str] = {}
