"""The software and hardware that a run used, for its summary."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

import motet
from motet.experiment.build.cpu_info import processor_name

COMMIT_DIGITS = 10
PACKAGES = ("torch", "transformers", "tokenizers", "numpy")


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "motet": motet.__version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # a folder on PYTHONPATH without its metadata
            continue
    if commit := source_commit():
        versions["commit"] = commit
    return versions


@cache
def source_commit() -> str:
    """Return the commit of the source tree that Motet runs from, with "+" if files were changed since.

    Empty if Motet was installed as a package.
    """
    root = Path(__file__).parents[4]
    if not (root / ".git").exists():
        return ""
    try:
        commit = _git(root, "rev-parse", f"--short={COMMIT_DIGITS}", "HEAD")
        return f"{commit}+" if _git(root, "status", "--porcelain", "--", "src") else commit
    except (OSError, subprocess.SubprocessError):  # git is not installed, or the tree belongs to somebody else
        return ""


def _git(root: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return result.stdout.strip()


def describe_software(versions: Mapping[str, str]) -> str:
    """Return Motet's version and commit, from the versions in a summary."""
    recorded = versions.get("commit", "")
    commit = recorded.removesuffix("+")[:COMMIT_DIGITS] + "+" * recorded.endswith("+")
    unnamed = "Motet" if commit else "an unknown version of Motet"  # some older runs recorded only the commit
    version = f"Motet {versions['motet']}" if "motet" in versions else unnamed
    return f"{version} ({commit})" if commit else version


def describe_machine(device: torch.device) -> dict[str, str]:
    """Describe the hardware. Names of machines and people are left out."""
    description = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": f"{os.cpu_count()} cores",
    }
    if device.type == "cuda":
        description["gpu"] = torch.cuda.get_device_name(device)
    return {name: text for name, text in description.items() if text}
