"""How to install the packages of an optional feature. The command works wherever Motet itself came from."""

from __future__ import annotations

import importlib.metadata
import re

_EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")


def install_command(extra: str, package: str = "") -> str:
    """Return a pip command for the packages of an extra, or one of them, such as `pip install 'grpcio>=1.60'`."""
    packages = [f"'{requirement}'" for requirement in _packages(extra) if requirement.startswith(package)]
    return f"pip install {' '.join(packages)}" if packages else f"pip install 'motet[{extra}]'"


def _packages(extra: str) -> list[str]:
    try:
        requirements = importlib.metadata.requires("motet") or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return []
    pairs = [requirement.partition(";")[::2] for requirement in requirements]
    return [package.strip() for package, marker in pairs if _EXTRA.search(marker) and _EXTRA.findall(marker) == [extra]]
