"""What an engine loads of a model beside its decoder: tables of rotary positions, and the tower that sees images.

Rotary tables as vLLM builds them (read in 0.32, layers/rotary_embedding): one row per position that the config allows,
times the factor under linear and dynamic scaling; one table per base frequency. A tower that shapes.towers does not
know is counted as most vision transformers are built: four square matrices and two of the MLP per layer, patches.
"""

from jobs.planner.shapes.config_values import ConfigValues

_STRETCHED = ("linear", "dynamic")
_SIDES = ("hidden_size", "width", "embed_dim")


def rotary_elements(text: ConfigValues, size: int) -> int:
    """Return elements of all rotary tables; `size` is of a head's rotated part. Raises: ShapeUnreadable."""
    positions = text.optional_count("max_position_embeddings", limit=10**9) or 0
    if not positions or not size or text.has("n_positions"):
        return 0
    share = text.values.get("partial_rotary_factor")
    if isinstance(share, float) and 0 < share < 1:
        size = int(size * share)
    scaling = text.table("rope_scaling") or text.table("rope_parameters")
    factor = 1.0
    if scaling is not None:
        kind = scaling.values.get("rope_type") or scaling.values.get("type")
        scale = scaling.values.get("factor")
        is_number = isinstance(scale, int | float) and not isinstance(scale, bool) and 1 <= scale <= 10_000
        factor = float(scale) if kind in _STRETCHED and is_number else 1.0  # type: ignore[arg-type]
    local = positions if text.has("rope_local_base_freq") else 0
    return round(positions * factor + local) * size


def tower_about(outer: ConfigValues, hidden: int) -> int:
    """Return elements of the vision tower and its projector, 0 without; about right. Raises: ShapeUnreadable."""
    vision = outer.table("vision_config")
    if vision is None or not vision.has(vision.first(*_SIDES)):
        return 0
    side = vision.count(*_SIDES, limit=1_000_000)
    layers = vision.optional_count("num_hidden_layers", "depth", "layers", limit=10_000) or 0
    width = vision.optional_count("intermediate_size", limit=1_000_000) or 4 * side
    patch = vision.optional_count("patch_size", limit=1_000) or 14
    image = vision.optional_count("image_size", limit=100_000) or 0
    inside = vision.optional_count("vision_output_dim", "out_hidden_size", limit=1_000_000) or side
    blocks = layers * (4 * side * side + 2 * side * width + 9 * side + width)
    return blocks + 3 * patch * patch * side + (image // patch) ** 2 * side + _projector(side, width, inside, hidden)


def _projector(side: int, width: int, inside: int, hidden: int) -> int:
    if inside in (side, hidden):
        return side * hidden
    return width * inside + inside * inside + inside * hidden  # an adapter of two matrices, then the projection
