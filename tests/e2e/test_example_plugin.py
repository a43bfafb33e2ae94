"""The example package is installed and used: in lists, checks, recipes and suites, and by clients in other processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = """
import sys
from motet import cli

for command in {commands!r}:
    sys.argv = ["motet", *command.split()]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, command
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example package, installed in the folder `site` next to it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "package"
    shutil.copytree(ROOT / "examples" / "motet-example-plugin", source)
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    pip = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder / "site"), str(source)]
    subprocess.run(pip, check=True)
    return source


def run_python(package: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(package.parent / "site"), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=package, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_commands_use_the_components_of_the_package(package: Path) -> None:
    commands = [
        "list algorithms",
        "check recipe.yaml",
        "run recipe.yaml rounds=1 partition.clients=2 transport.type=grpc --out run",
        "bench suite.yaml --seeds 1 --dry-run",
    ]
    output = run_python(package, "-c", COMMANDS.format(commands=commands))
    assert "SCAFFOLD with control variates that are damped" in output
    assert "All checks passed." in output
    assert "stars, primary metric closeness" in output
    summary = json.loads((package / "run" / "summary.json").read_text())
    assert summary["task"] == "stars"
    assert 0 <= summary["final"]["closeness"] <= 1
    (line,) = (package / "run" / "tracked.jsonl").read_text().splitlines()
    assert json.loads(line)["round"] == 1


def test_the_package_passes_the_contract_suites(package: Path) -> None:
    assert "failed" not in run_python(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
