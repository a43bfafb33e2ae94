"""Runs over a real SuperLink with TLS and three SuperNodes give the weights of runs in one process. Needs Flower's commands."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.motet_process import count_rounds
from tests.networks import find_free_port

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(
    shutil.which("flower-superlink", path=str(SCRIPTS)) is None or shutil.which("openssl") is None,
    reason="Flower (pip install 'motet[flower]', in an environment of its own) or openssl is not installed",
)
RECIPE, CLIENTS = "toy-classification", 3
SETTINGS = [f"partition.clients={CLIENTS}", "data.limit=60", "data.test_limit=16", "device=cpu"]
PATIENCE = 600.0  # seconds; a busy machine starts Flower's processes slowly


def _is_server_app(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it may have ended in the meantime
        return any("flwr-serverapp" in word for word in process.cmdline())
    return False


class FlowerProcesses:
    """A SuperLink with TLS, SuperNodes, and what is started beside them, each in a group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, home = folder, find_free_port(), folder / "flwr"
        home.mkdir()
        create_certificate(folder)
        entry = f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\nroot-certificates = "{folder}/server.pem"\n'
        (home / "config.toml").write_text(entry)
        variables = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": str(ROOT / "src")}
        self.environment = {
            **os.environ, **variables, "PATH": f"{SCRIPTS}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"
        }  # fmt: skip
        self.sockets = [Path(f"/tmp/motet-flower-{os.getpid()}-{k}") for k in range(CLIENTS)]  # a short path
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)), env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        return self.processes[name]

    def start_superlink(self) -> None:
        tls = ("--ssl-ca-certfile", "server.pem", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key")
        paths = [self.folder / word if "." in word else word for word in tls]
        options = ("--port", str(self.port), "--disable-runtime-dependency-installation")
        self.start("superlink", "flower-superlink", *paths, *options)

        def is_open() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self.wait_until(is_open)

    def start_node(self, k: int) -> None:
        address = ("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", self.folder / "server.pem")
        config = ("--port", str(find_free_port()), "--node-config", f'motet-socket="{self.sockets[k]}"')
        self.start(f"node{k}", "flower-supernode", *address, *config)

    def start_run(self, out: str, settings: list[str], resume: bool = False) -> None:
        """Start the clients, unless they still wait for the run, and the run."""
        for k, path in enumerate(self.sockets if not resume else ()):
            join = (sys.executable, "-m", "motet", "join", "--transport", "flower", "--recipe", RECIPE, *settings)
            state = ("--state-dir", self.folder / f"state-{out}-{k}")
            self.start(f"{out}-{k}", *join, "--server", path, *state, "--name", f"client-{k}")
        values = f'recipe="{RECIPE}" settings="{" ".join(settings)}" out="{self.folder / out}"'
        app, resumed = ROOT / "examples" / "motet-on-flower", " resume=true" if resume else ""
        self.start(f"{out}-run{resume}", "flwr", "run", app, "here", "--stream", "--run-config", values + resumed)

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_true():
            assert time.monotonic() < deadline, "\n".join(path.read_text() for path in self.folder.glob("*.log"))
            time.sleep(0.2)

    def wait_for_results(self, out: str) -> bytes:
        """Wait for the end of the run and of its clients. Return the weights."""
        self.wait_until((self.folder / out / "summary.json").exists)
        for k in range(CLIENTS):
            assert self.processes[f"{out}-{k}"].wait(PATIENCE) == 0
        return (self.folder / out / "model" / "model.safetensors").read_bytes()

    def find_server_app(self) -> psutil.Process | None:
        tree = psutil.Process(self.processes["superlink"].pid).children(recursive=True)
        return next(filter(_is_server_app, tree), None)

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            process.wait(60)


def create_certificate(folder: Path) -> None:
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=superlink", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", "-x509", *new_key, *names, "-keyout", "server.key", "-out", "server.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def train_here(folder: Path, settings: list[str]) -> bytes:
    run_recipe(load_recipe(RECIPE, settings), folder)
    return (folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlowerProcesses]:
    processes = FlowerProcesses(tmp_path_factory.mktemp("flower"))
    try:
        processes.start_superlink()
        for k in range(CLIENTS):
            processes.start_node(k)
        yield processes
    finally:
        processes.stop()


@pytest.mark.parametrize(
    "setting", ["codec.up=[int8]", "secure.type=secagg", "secure.type=secagg_plus", "secure.type=light_secagg"]
)
def test_a_run_over_flower_gives_the_same_weights_as_in_process(
    setting: str, flower: FlowerProcesses, tmp_path: Path
) -> None:
    settings, out = [*SETTINGS, "rounds=1", setting], setting.partition("=")[2].strip("[]")
    flower.start_run(out, settings)
    assert flower.wait_for_results(out) == train_here(tmp_path / "here", settings)


def test_a_run_over_flower_survives_killed_processes(flower: FlowerProcesses, tmp_path: Path) -> None:
    """A SuperNode is killed and started again, then the ServerApp is killed and the run resumed."""
    settings, out = [*SETTINGS, "rounds=5", "secure.type=secagg"], "killed"
    flower.start_run(out, settings)
    flower.wait_until(lambda: count_rounds(flower.folder / out) >= 1)
    os.killpg(flower.processes["node1"].pid, signal.SIGKILL)
    flower.start_node(1)
    reached = count_rounds(flower.folder / out)
    flower.wait_until(lambda: count_rounds(flower.folder / out) > reached)
    server_app = flower.find_server_app()
    assert server_app is not None
    server_app.kill()  # it stays a zombie, because Flower does not wait for it
    assert not (flower.folder / out / "summary.json").exists()
    flower.start_run(out, settings, resume=True)
    assert flower.wait_for_results(out) == train_here(tmp_path / "here", settings)
