"""What DeepSpeed does when it starts and training here never uses, spared: seconds of every rank."""

import os


def spare() -> None:
    """Call it before the first `deepspeed.initialize` of a process."""
    import deepspeed

    # Reading this name makes DeepSpeed try a compiler and a linker on every extension it has, whose errors land in the
    # log, and its shared-memory one is then built at the first init: 25 s. The answer is given before the question.
    deepspeed.ops.__compatible_ops__ = {}

    # ZeRO imports the optimizer Muon to ask whether it is the one in use, and with its kernels' torch.compile all of
    # Inductor: 2 s of a core and 54 MB. This trainer has AdamW alone, so the kernels may stay as they are written.
    before = os.environ.get("TORCHDYNAMO_DISABLE")
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    try:
        import deepspeed.runtime.zero.muon.original_muon
    except ImportError:
        pass  # a DeepSpeed that has no Muon, or has it elsewhere
    finally:
        if before is None:
            del os.environ["TORCHDYNAMO_DISABLE"]
        else:
            os.environ["TORCHDYNAMO_DISABLE"] = before
