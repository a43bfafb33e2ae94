"""Flower's deployment on the echo: a SuperLink and one SuperNode a client, each a real process, on this machine.

Flower has an interpreter of its own (`pip install flwr` in a fresh environment), for it wants other releases than Motet. As it
comes, a SuperNode starts a process for each message to its app; that is part of what is measured. Its server's memory is the
SuperLink's and the app's together.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "echo"
version = "1.0.0"
description = "Every client sends back what it was sent"
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
patience = 60.0
out = ""
"""


class UnmeasuredError(Exception):
    """Why there is no number."""


def measured(
    python: str, millions: float, tensors: int, clients: int, rounds: int, patience: float
) -> tuple[list[float], float]:
    """Seconds of each round after the first, and the server's peak memory in MB."""
    tools = Path(python).absolute().parent
    with tempfile.TemporaryDirectory(prefix="flower-") as place:
        folder, port = Path(place), _free_port()
        _lay_out(folder, port)
        out, until = folder / "out.json", time.monotonic() + patience
        link = [tools / "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port]
        with _running(folder, "superlink", [*link, "--disable-runtime-dependency-installation"]) as superlink:
            _listening(port, superlink, folder)
            nodes = [_node(folder, tools, port, index) for index in range(clients)]
            try:
                said = {"millions": float(millions), "tensors": tensors, "clients": clients, "rounds": rounds}
                words = " ".join(
                    f"{k}={v}" for k, v in {**said, "patience": float(patience), "out": f'"{out}"'}.items()
                )
                command = [tools / "flwr", "run", folder / "app", "here", "--run-config", words]
                began = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, check=False)
                if began.returncode:
                    raise UnmeasuredError(
                        f"flwr run ended with {began.returncode}: {_last(began.stdout + began.stderr)}"
                    )
                found = _awaited(out, rounds, until, superlink, folder)
                return found["seconds"][1:], found["peak"] + _peak(superlink.pid)
            finally:
                for node in nodes:
                    _end(node)


def _lay_out(folder: Path, port: int) -> None:
    (folder / "app" / "echo").mkdir(parents=True)
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    (folder / "app" / "echo" / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("flower_app.py"), folder / "app" / "echo" / "app.py")
    (folder / "home").mkdir()
    known = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (folder / "home" / "config.toml").write_text(known)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}


def _start(folder: Path, name: str, command: list[object]) -> subprocess.Popen[bytes]:
    tools = str(Path(str(command[0])).parent)
    environment = _environment(folder)
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"  # it starts its apps by their names
    with (folder / f"{name}.log").open("wb") as log:
        words = [str(word) for word in command]
        return subprocess.Popen(words, env=environment, stdout=log, stderr=log)


def _node(folder: Path, tools: Path, port: int, index: int) -> subprocess.Popen[bytes]:
    command = [tools / "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", _free_port()]
    return _start(folder, f"node-{index}", command)


@contextmanager
def _running(folder: Path, name: str, command: list[object]) -> Iterator[subprocess.Popen[bytes]]:
    process = _start(folder, name, command)
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and all that came of it: what it starts has sessions of its own, and would outlive it for a while."""
    for pid in (process.pid, *_descendants(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _listening(port: int, superlink: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and superlink.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise UnmeasuredError(
        f"the SuperLink does not listen: {_last((folder / 'superlink.log').read_text(errors='replace'))}"
    )


def _awaited(out: Path, rounds: int, until: float, superlink: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    while True:
        found = json.loads(out.read_text()) if out.exists() else {"seconds": []}
        over = time.monotonic() > until or superlink.poll() is not None
        if len(found["seconds"]) > rounds or (over and len(found["seconds"]) > 1):
            return found
        if over:
            last = _last((folder / "superlink.log").read_text(errors="replace"))
            raise UnmeasuredError(
                f"{len(found['seconds'])} rounds in the time allowed; two are needed. Its last words: {last}"
            )
        time.sleep(0.2)


def _peak(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1e3 if found else 0.0


def _last(text: str) -> str:
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", text).splitlines() if line.strip(" │╭╰─╮╯")]
    return lines[-1][:200] if lines else "none"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
