"""What every vLLM worker process must import before its model is built: our weight-transfer backend.

vLLM mixes the class into its worker (`worker_extension_cls`); it adds nothing itself.
"""

import jobs.engine.roles.gloo_transfer  # noqa: F401  registers the backend


class RolloutWorker:
    """No method of its own."""
