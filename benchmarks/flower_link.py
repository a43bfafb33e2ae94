"""Flower's deployment on `benchmarks.echo`: a SuperLink and one SuperNode per client, as processes on this machine.

Flower runs in a separate interpreter (`pip install flwr` in a fresh environment), because it needs other releases of some
packages than Motet. By default a SuperNode starts a process for each message to its app; that is part of the measurement.
The server's memory is that of the SuperLink and its app together.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "echo"
version = "1.0.0"
description = "Every client returns the weights it received"
license = "Apache-2.0"
dependencies = ["flwr"]
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "motet"
[tool.flwr.app.components]
serverapp = "echo.app:server"
clientapp = "echo.app:client"
[tool.flwr.app.config]
millions = 1.0
tensors = 200
clients = 2
rounds = 3
timeout = 60.0
out = ""
"""


class UnmeasuredError(Exception):
    """A measurement was not possible. The message says why."""


def measure_flower(
    python: str, millions: float, tensors: int, clients: int, rounds: int, timeout: float
) -> tuple[list[float], float]:
    """Return the seconds of each round after the first, and the server's peak memory in MB."""
    tools = Path(python).absolute().parent
    with tempfile.TemporaryDirectory(prefix="flower-") as name:
        folder, port = Path(name), _free_port()
        _write_app(folder, port)
        out, deadline = folder / "out.json", time.monotonic() + timeout
        link = [tools / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port]
        with _running(folder, "superlink", [*link, "--disable-runtime-dependency-installation"]) as superlink:
            _wait_until_listening(port, superlink, folder)
            nodes = [_start_node(folder, tools, port, index) for index in range(clients)]
            try:
                config = {"millions": float(millions), "tensors": tensors, "clients": clients, "rounds": rounds}
                config |= {"timeout": float(timeout), "out": f'"{out}"'}
                settings = " ".join(f"{key}={value}" for key, value in config.items())
                command = [tools / "flwr", "run", folder / "app", "here", "--run-config", settings]
                start = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, check=False)
                if start.returncode:
                    raise UnmeasuredError(
                        f"flwr run ended with {start.returncode}: {_last_line(start.stdout + start.stderr)}"
                    )
                results = _wait_for_results(out, rounds, deadline, superlink, folder)
                return results["seconds"][1:], results["peak"] + _peak_memory(superlink.pid)
            finally:
                for node in nodes:
                    _kill(node)


def _write_app(folder: Path, port: int) -> None:
    (folder / "app" / "echo").mkdir(parents=True)
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    (folder / "app" / "echo" / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("flower_app.py"), folder / "app" / "echo" / "app.py")
    (folder / "home").mkdir()
    config = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (folder / "home" / "config.toml").write_text(config)


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**inherited, "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}


def _start(folder: Path, name: str, command: list[object]) -> subprocess.Popen[bytes]:
    tools = str(Path(str(command[0])).parent)
    environment = _environment(folder)
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"  # it starts its apps by name
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([str(argument) for argument in command], env=environment, stdout=log, stderr=log)


def _start_node(folder: Path, tools: Path, port: int, index: int) -> subprocess.Popen[bytes]:
    command = [tools / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", _free_port()]
    return _start(folder, f"node-{index}", command)


@contextmanager
def _running(folder: Path, name: str, command: list[object]) -> Iterator[subprocess.Popen[bytes]]:
    process = _start(folder, name, command)
    try:
        yield process
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants, which are in other sessions and would outlive it."""
    with suppress(psutil.NoSuchProcess):
        for descendant in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                descendant.kill()
    process.kill()
    process.wait()


def _wait_until_listening(port: int, superlink: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and superlink.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise UnmeasuredError(
        f"the SuperLink does not listen: {_last_line((folder / 'superlink.log').read_text(errors='replace'))}"
    )


def _wait_for_results(
    out: Path, rounds: int, deadline: float, superlink: subprocess.Popen[bytes], folder: Path
) -> dict[str, Any]:
    while True:
        results = json.loads(out.read_text()) if out.exists() else {"seconds": []}
        is_over = time.monotonic() > deadline or superlink.poll() is not None
        if len(results["seconds"]) > rounds or (is_over and len(results["seconds"]) > 1):
            return results
        if is_over:
            last = _last_line((folder / "superlink.log").read_text(errors="replace"))
            raise UnmeasuredError(
                f"{len(results['seconds'])} rounds before the timeout; at least 2 are needed. Last line of the log: {last}"
            )
        time.sleep(0.2)


def _peak_memory(pid: int) -> float:
    """Return the process's peak resident memory in MB. psutil has no peak on Linux."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1e3 if match else 0.0


def _last_line(text: str) -> str:
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", text).splitlines() if line.strip(" │╭╰─╮╯")]
    return lines[-1][:200] if lines else "none"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
