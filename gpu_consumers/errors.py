"""What can be wrong with a GPU consumer as a whole: one tree, stable codes.

What is wrong with one sequence is never an exception: it is a reason in `StepResult.failures`.
"""

from typing import ClassVar


class GpuConsumerError(Exception):
    """Root of the tree. `code` is stable: callers act on it, never on the message."""

    code: ClassVar[str] = "gpu_consumer_error"


class ModelFilesMissingError(GpuConsumerError):
    """The model's directory, its configuration or its weights are not there or cannot be read."""

    code = "model_files_missing"


class UnsupportedModelError(GpuConsumerError):
    """The model's architecture, or an option in its configuration, is not one that the engine computes right."""

    code = "unsupported_model"


class EngineConfigurationError(GpuConsumerError):
    """The engine was asked for something that cannot be: a dtype, a device, a number of slots."""

    code = "engine_configuration"


class AdapterUnavailableError(GpuConsumerError):
    """A LoRA adapter can't be read, is not one that the engine computes right, or does not fit the model."""

    code = "adapter_unavailable"


class EngineFailedError(GpuConsumerError):
    """The engine as a whole is unusable: the worker has to end, and another goes on with its requests."""

    code = "engine_failed"


class DeploymentUnknownError(GpuConsumerError):
    """The registry has no model for the deployment that this worker is to serve, or none that it can serve."""

    code = "deployment_unknown"


class WorkerFailedError(GpuConsumerError):
    """A thread of the worker ended with an error."""

    code = "worker_failed"


class ProfileFileError(GpuConsumerError):
    """A file of a profile can't be written."""

    code = "profile_file"


class MemoryShortError(GpuConsumerError):
    """A model, or a step of it, does not fit into the memory that is there."""

    code = "memory_short"
