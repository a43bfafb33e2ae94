"""The processor of this machine: its name, and whether it multiplies in bfloat16."""

from __future__ import annotations

import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")  # of Linux
BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")  # instructions for products in bfloat16; the last one is ARM's


def processor_name() -> str:
    """Return the processor's name. On Linux, `platform.processor` does not have it."""
    return _read_field("model name") if CPU_INFO.exists() else platform.processor()


def find_bf16_flags() -> list[str]:
    """Return the flags of the instructions for products in bfloat16. There are none on systems other than Linux."""
    flags = (_read_field("flags") or _read_field("Features")).split()
    return [flag for flag in BF16_FLAGS if flag in flags]


def _read_field(name: str) -> str:
    """Return a field of the first processor, or an empty text."""
    try:
        lines = CPU_INFO.read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
