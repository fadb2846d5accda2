"""What one GPU consumer is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eventlog.profile import BrokerProfile
from gpu_consumers.partition import WaterMarks
from schemas.topics import Topics


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Checked by whoever reads the environment; which model and which engine stands in the registry.

    deployment: the consumer group, and the model version that it serves.
    worker_id: unique among the workers of all deployments.
    slots: sequences in the batch.
    max_step_tokens: most tokens in one step, prefill and decode together; None leaves that to the engine.
    device, dtype, quantization: of the torch engine. threads: CPU threads of the engine; None leaves that to torch.
    kernels_dir: where kernels compiled for this machine are kept; None: torch's own operations do their work.
    tensor_parallel: processes that share one model of the torch engine, this one among them.
    kv_cache_bytes: memory for keys and values of all sequences; None: measured when the engine is opened.
    prefix_cache_bytes: most of it for keys and values of prompts that may come again; 0 keeps none.
    adapter_places: LoRA adapters that the engine holds at once; adapter_max_rank: the highest rank of one.
    echo_tokens_per_second: rate of one sequence of the echo engine; 0 is as fast as it goes.
    marks: unfinished records of one partition that are held here.
    metrics_port: /metrics on loopback at this port, 0 for any free one; None for none.
    telemetry_seconds: between two reports to the telemetry topic; 0 for none.
    throughput_seconds: how long the engine may be measured before the group is joined; 0 for not at all.
    drain_seconds: how long, when it is to stop, it finishes what can be finished in that time; 0: it stops at once.
    spot_notice_file: when this file is there, the worker stops as if it was told to; None: no such notice comes.
    deployment_timeout_s: how long the deployment's model may be missing in the registry at the start.
    """

    profile: BrokerProfile
    deployment: str
    worker_id: str
    topics: Topics = field(default_factory=Topics)
    device: str = "cpu"
    dtype: str = "bfloat16"
    quantization: str = "none"
    slots: int = 16
    max_step_tokens: int | None = None
    echo_tokens_per_second: float = 200.0
    threads: int | None = None
    kernels_dir: Path | None = None
    kv_cache_bytes: int | None = None
    prefix_cache_bytes: int = 0
    adapter_places: int = 8
    adapter_max_rank: int = 64
    tensor_parallel: int = 1
    marks: WaterMarks = field(default_factory=WaterMarks)
    metrics_port: int | None = None
    telemetry_seconds: float = 5.0
    throughput_seconds: float = 0.0
    drain_seconds: float = 0.0
    spot_notice_file: Path | None = None
    deployment_timeout_s: float = 10.0
