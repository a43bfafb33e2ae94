"""requirements.lock has the versions of constraints.txt, a hash for each, and names no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# Only the CUDA build of torch, Python in a browser and Windows need these. constraints.txt leaves them to whoever uses such a build.
OTHER_PLATFORMS = re.compile(r"cuda-|nvidia-|httpx2-jsfetch$|pywin32-ctypes$")


def pins(lines: list[str]) -> dict[str, str]:
    matches = [re.match(r"([\w.-]+)==([^\s;]+)", line) for line in lines]
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


LOCK = (ROOT / "requirements.lock").read_text()
LOCKED = pins(LOCK.splitlines())


def test_the_lock_and_the_constraints_agree() -> None:
    constraints = pins((ROOT / "constraints.txt").read_text().splitlines())
    here = {name: version for name, version in LOCKED.items() if not OTHER_PLATFORMS.match(name)}
    assert here == constraints, "run make lock"


def test_the_lock_covers_every_requirement_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    own = {name for line in extras["all"] for name in Requirement(line).extras}
    lines = [
        *project["dependencies"],
        *extras["dev"],
        *extras["docs"],
        *(line for name in own for line in extras[name]),
    ]
    for requirement in map(Requirement, lines):
        if requirement.name != "motet":
            assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)]), requirement


def test_every_locked_package_has_a_hash_and_none_has_an_address() -> None:
    packages = re.split(r"\n(?=[a-z])", LOCK)[1:]
    assert len(packages) == len(LOCKED)
    assert all("--hash=sha256:" in package for package in packages)
    assert "://" not in LOCK
    assert "index" not in LOCK
