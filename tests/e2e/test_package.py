"""The sdist and the wheel are built, checked, and installed into an empty environment. No network is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

import motet

ROOT = Path(__file__).parents[2]
VERSION = motet.__version__


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that is built from it, as an installer would."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    with tarfile.open(folder / f"motet-{VERSION}.tar.gz") as archive:
        archive.extractall(folder / "source", filter="data")
    source = folder / "source" / f"motet-{VERSION}"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return folder


def test_the_packages_pass_twine_and_are_complete(packages: Path) -> None:
    pytest.importorskip("twine")
    sdist, wheel = packages / f"motet-{VERSION}.tar.gz", packages / f"motet-{VERSION}-py3-none-any.whl"
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, cwd=packages)
    files = {path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    expected = {path.relative_to(ROOT / "src").as_posix() for path in files if ".egg-info" not in str(path)}
    assert expected <= set(ZipFile(wheel).namelist())
    assert "motet/py.typed" in expected
    with tarfile.open(sdist) as archive:
        assert len(archive.getnames()) < len(expected) + 20  # nothing but the source and a few pages


def test_the_wheel_works_in_an_empty_environment(packages: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    paths = sysconfig.get_paths(vars={"base": str(tmp_path / "env"), "platbase": str(tmp_path / "env")})
    site = Path(paths["purelib"])
    wheel = packages / f"motet-{VERSION}-py3-none-any.whl"
    offline = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--quiet"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, wheel, cwd=tmp_path)
    (site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    command = tmp_path / "env" / "bin" / "motet"
    assert run(command, "--version", cwd=tmp_path) == f"motet {VERSION}\n"
    code = "import motet.recipes as r; from importlib import resources; print(*resources.files(r).iterdir())"
    assert str(site / "motet" / "recipes" / "quickstart.yaml") in run(python, "-c", code, cwd=tmp_path)


def test_the_default_installation_is_light() -> None:
    """Clusters, development tools and everything else that a first run does not need are extras."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {line.split(">")[0].split("[")[0] for line in project["dependencies"]}
    assert not names & {"ray", "mpi4py", "mpich", "pytest", "mypy", "ruff", "datasets", "grpcio", "pandas", "plotly"}
