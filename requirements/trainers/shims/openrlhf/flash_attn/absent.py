"""Stands in for flash-attn where there is no GPU: OpenRLHF imports names of it, and calls them only to pack samples."""


def absent(name: str):
    """Return a function that says, when it is called, that the real flash-attn is needed."""

    def call(*_arguments, **_more):
        raise NotImplementedError(
            f"flash_attn's {name} was called, and this environment has only a stand-in for machines without a GPU. "
            "Switch packing off (--ds.packing_samples) or install flash-attn on a machine with CUDA."
        )

    return call
