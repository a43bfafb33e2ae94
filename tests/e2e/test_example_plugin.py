"""The example package is installed and used: in lists, checks, recipes and suites, and by clients in other processes."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motet.cli import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the example package. It is installed in a folder of its own, where this process finds it."""
    folder = tmp_path_factory.mktemp("plugin")
    source, site = folder / "package", str(folder / "site")
    shutil.copytree(ROOT / "examples" / "motet-example-plugin", source)
    offline = [
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--no-compile",
        "--disable-pip-version-check",
        "--quiet",
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", site, str(source)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(source)
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", site, prepend=":")  # for clients in other processes
        yield source


def run_command(command: str) -> str:
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_use_the_components_of_the_package(package: Path) -> None:
    assert "SCAFFOLD with control variates that are damped" in run_command("list algorithms")
    output = run_command("check recipe.yaml partition.clients=2")
    assert "All checks passed." in output
    assert "stars, primary metric closeness" in output
    run_command(
        "run recipe.yaml rounds=1 partition.clients=2 data.limit=32 transport.type=grpc transport.processes=1 --out run"
    )
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["task"] == "stars"
    assert 0 <= summary["final"]["closeness"] <= 1
    (line,) = Path("run/tracked.jsonl").read_text().splitlines()
    assert json.loads(line)["round"] == 1
    assert "3 runs" in run_command("bench suite.yaml --seeds 1 --dry-run")


def test_the_package_passes_the_contract_suites(package: Path) -> None:
    tests = [value for name, value in runpy.run_path("tests/test_contract.py").items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
