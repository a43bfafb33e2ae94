"""Show which kernels a round runs on a GPU, and how long the device waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def profile_round(play: Callable[[], object]) -> str:
    """Run a round under torch's profiler; return tables of its kernels and of the calls of the host."""
    torch.cuda.synchronize()
    with torch.profiler.profile() as profiler:
        start = time.perf_counter()
        play()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    averages = profiler.key_averages()
    kernels = [event for event in averages if event.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(event.self_device_time_total for event in kernels) / 1e6
    lines = [
        averages.table(sort_by="self_device_time_total", row_limit=40, max_name_column_width=70),
        averages.table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=70),
        f"round: {seconds:.4f} s, of which kernels {busy:.4f} s",
    ]
    return "\n".join(lines)
