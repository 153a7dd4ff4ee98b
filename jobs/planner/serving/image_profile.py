"""Memory that vLLM's start-up profile finds in a model's image tower.

vLLM (read in 0.32, profile_run, encoder_budget.py) runs the tower on as many images of the greatest size as a step may
have: its budget is the tokens of a step, at least one image's. What they become is kept while the decoder's own pass
runs, as are their pixels: the peak is the tower's, or the decoder's beside those, whichever is more. The tower runs
without compilation, on the first pipeline stage, its matrices divided among tensor ranks.
"""

from jobs.catalog.sentence import Sentence
from jobs.planner.job import Engine

_ELEMENT_BYTES = 2  # pixels have the model's type, too


def image_bytes(engine: Engine, *, max_num_seqs: int, batched_tokens: int, longest: int) -> tuple[int, int]:
    """Return bytes on a device: (the peak of the tower's pass, what stays of it beside the decoder's pass). Both are 0
    for a model that sees no images, is told to see none, or whose tower is not known."""
    image = engine.model.image
    if image is None or engine.images_per_prompt == 0 or engine.name != "vllm":
        return 0, 0
    images = max(longest // image.tokens, 1)
    if engine.images_per_prompt is not None:
        images = min(images, engine.images_per_prompt)
    images = max(min(max(batched_tokens, image.tokens) // image.tokens, max_num_seqs * images), 1)
    pixels = image.patches * image.values
    passing = image.patches * image.patch_elements(engine.tensor) + pixels
    beside = image.tokens * image.out + pixels
    return round(images * passing * _ELEMENT_BYTES), images * beside * _ELEMENT_BYTES


def doubt_of_images(engine: Engine | None) -> tuple[Sentence, ...]:
    """Return the sentence that the cache may be smaller, where an engine sees images by a tower that is not known."""
    if engine is None or engine.name != "vllm" or engine.images_per_prompt == 0:
        return ()
    if not engine.model.tower or engine.model.image is not None:
        return ()
    text = (
        "What vLLM's start takes to see the greatest image is not known of this model: its cache may be 1 to 3 GiB"
        " smaller than planned, unless it is started for text alone."
    )
    return (Sentence(text),)
