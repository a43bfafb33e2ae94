"""A run over a real SuperLink and two SuperNodes gives the weights of the run in one process. Needs Flower's commands."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.networks import find_free_port

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(
    shutil.which("flower-superlink", path=str(SCRIPTS)) is None,
    reason="Flower is not installed (pip install 'motet[flower]', in an environment of its own)",
)
RECIPE = "toy-classification"
SETTINGS = ["rounds=1", "partition.clients=2", "data.limit=40", "data.test_limit=16", "device=cpu"]
PATIENCE = 300.0  # seconds; a busy machine starts Flower's processes slowly


@contextmanager
def run_processes(folder: Path, environment: dict[str, str], *commands: list[str]) -> Iterator[None]:
    """Run processes in the background, each with its own group, and stop all of them at the end."""
    processes = []
    try:
        for number, command in enumerate(commands):
            log = (folder / f"{number}.log").open("wb")
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait(60)


def wait_until_open(port: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError((folder / "0.log").read_text())


def test_a_run_over_flower_gives_the_same_weights_as_in_process(tmp_path: Path) -> None:
    port, home = find_free_port(), tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    variables = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": str(ROOT / "src")}
    environment = {**os.environ, **variables, "PATH": f"{SCRIPTS}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    sockets = [Path(f"/tmp/motet-flower-{os.getpid()}-{k}") for k in range(2)]  # the path of a socket must be short
    node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port"]
    join = [sys.executable, "-m", "motet", "join", "--transport", "flower", "--recipe", RECIPE, *SETTINGS]
    commands = [["flower-superlink", "--insecure", "--port", str(port), "--disable-runtime-dependency-installation"]]
    for k, path in enumerate(sockets):
        commands.append([*node, str(find_free_port()), "--node-config", f'motet-socket="{path}"'])
        commands.append([*join, "--server", str(path), "--state-dir", str(tmp_path / "state"), "--name", f"client-{k}"])
    app, out = str(ROOT / "examples" / "motet-on-flower"), tmp_path / "run"
    values = f'recipe="{RECIPE}" settings="{" ".join(SETTINGS)}" out="{out}"'
    with run_processes(tmp_path, environment, *commands):
        wait_until_open(port, tmp_path)
        run = ["flwr", "run", app, "here", "--stream", "--run-config", values]
        result = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (out / "summary.json").exists(), result.stdout + result.stderr
    run_recipe(load_recipe(RECIPE, SETTINGS), tmp_path / "local")
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (out, tmp_path / "local")]
    assert weights[0] == weights[1]
