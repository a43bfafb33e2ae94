"""The software and hardware that a run used, for its summary."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = ("motet", "torch", "transformers", "tokenizers", "numpy")


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # run from a source tree
            continue
    return versions


def describe_machine(device: torch.device) -> dict[str, str]:
    """Describe the hardware. Names of machines and people are left out."""
    description = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor_name(),
        "cores": f"{os.cpu_count()} cores",
    }
    if device.type == "cuda":
        description["gpu"] = torch.cuda.get_device_name(device)
    return {name: text for name, text in description.items() if text}


def _processor_name() -> str:
    """Return the processor's name. On Linux, `platform.processor` does not have it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
