"""Build the executor that runs the jobs of simulated clients on this machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from motet.core.errors import ConfigError
from motet.core.work import Executor
from motet.experiment.build.cache_folder import keep_kernels
from motet.experiment.build.cpu_info import BF16_FLAGS, find_bf16_flags
from motet.experiment.build.federation import Federation
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.recipe.run_config import Precision
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor, default_worker_count
from motet.learning.executors.serial_executor import MAX_CACHE_BYTES, PrefixCache, SerialExecutor


def create_executor(
    device: torch.device,
    options: InProcessOptions,
    federations: Sequence[Federation],
    precision: Precision = "auto",
    max_cache_bytes: int = MAX_CACHE_BYTES,
) -> Executor:
    """Create an executor for the clients of all `federations`: processes on a CPU, packed models on a GPU.

    `max_cache_bytes` of disk are for the hidden states of frozen layers on a CPU.
    """
    if device.type == "cuda":
        keep_kernels()
    use_bf16 = uses_bfloat16(precision, device)
    if warning := bfloat16_warning(precision, device):
        logging.getLogger("motet").warning(warning)
    pairs = [pair for federation in federations for pair in federation.models_with_features]
    if device.type != "cpu":
        for model, _ in pairs:
            model.to_device(device)
        return PackedExecutor(device, options.width, use_bf16, options.cuda_graphs)
    cache = PrefixCache(max_cache_bytes)
    for model, features in pairs:
        cache.prepare(model, features)
    count = default_worker_count() if options.workers is None else options.workers
    if count == 0:
        return SerialExecutor(device, cache, use_bf16)
    models, features_by_key = {m.key: m for m, _ in pairs}, {f.key: f for _, f in pairs}
    return ProcessExecutor(count, models, features_by_key, cache, use_bf16)


def uses_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Return True if matrix products run in bfloat16. `auto` chooses it on GPUs that compute in it."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return precision == "bfloat16"


def bfloat16_warning(precision: Precision, device: torch.device) -> str:
    """Return a sentence if products in bfloat16 are slow on this device, else an empty text."""
    if device.type != "cpu" or not uses_bfloat16(precision, device) or find_bf16_flags():
        return ""
    return (
        "precision is bfloat16, but this CPU has no instructions for it that Motet knows "
        f"({', '.join(BF16_FLAGS)}), so training takes several times as long; use precision=float32"
    )


def describe_precision(precision: Precision, device: torch.device) -> str:
    """Say in which precision matrix products run, and what a CPU could do."""
    is_bfloat16 = uses_bfloat16(precision, device)
    name = "bfloat16" if is_bfloat16 else "float32"
    if device.type != "cpu":
        return name
    flags = ", ".join(find_bf16_flags())
    if not flags:
        return f"{name}; this CPU has no instructions for bfloat16"
    return f"{name}; this CPU {'has' if is_bfloat16 else 'also has'} instructions for bfloat16 ({flags})"


def resolve_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device is '{name}'; expected auto, cpu, cuda, cuda:0 or mps. Use device=auto.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is '{name}', but PyTorch finds no GPU; use device=cpu or device=auto.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device is '{name}', but PyTorch finds no Apple GPU; use device=cpu or device=auto.")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device is '{name}', which Motet cannot use; expected cpu, cuda or mps. Use device=auto.")
    return device
