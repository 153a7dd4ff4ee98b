"""What each worker of a vLLM engine imports before it loads a model: the weight-transfer backends of our own."""

import jobs.engine.roles.gloo_transfer
import jobs.engine.roles.shared_transfer  # noqa: F401  # both are registered


class RolloutWorker:
    """What vLLM mixes into each of its workers (`worker_extension_cls`), so that they import this module."""
