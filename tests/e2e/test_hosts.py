"""Server and clients on separate hosts: network namespaces on one bridge, with TLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

SETTINGS = [
    "rounds=6",
    "data.limit=300",
    "data.test_limit=40",
    "partition.clients=4",
    "wait_policy.reconnect_timeout=300",
    "device=cpu",
]
HOSTS = {"server": "10.77.31.1", "north": "10.77.31.2", "south": "10.77.31.3"}


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


@pytest.fixture
def find_namespace() -> Iterator[Callable[[str], str]]:
    """Create three hosts on one bridge. Yield a function from a host's name to its namespace; "bridge" is one too."""
    prefix = f"motet{os.getpid() % 100000}"
    bridge = f"{prefix}-bridge"
    try:
        ip("netns", "add", bridge)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces are not permitted here ({getattr(error, 'stderr', None) or error})")
    namespaces = [bridge]
    try:
        ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", bridge, "link", "set", "bridge", "up")
        for host, address in HOSTS.items():
            namespace = f"{prefix}-{host}"
            ip("netns", "add", namespace)
            namespaces.append(namespace)
            ip("-n", bridge, "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("-n", bridge, "link", "set", host, "master", "bridge", "up")
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", namespace, "link", "set", device, "up")
        yield lambda host: f"{prefix}-{host}"
    finally:
        for namespace in reversed(namespaces):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with the self-signed certificate of the server."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=server", "-addext", f"subjectAltName=IP:{HOSTS['server']}")
    command = ["openssl", "req", "-x509", *new_key, *names, "-keyout", "server.key", "-out", "server.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def count_rounds(run: Path) -> int:
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
    return max((row["round"] for row in rows), default=0)


def test_a_run_survives_a_link_that_goes_down_in_a_round(
    find_namespace: Callable[[str], str], certificates: Path, tmp_path: Path
) -> None:
    run, address = tmp_path / "run", f"{HOSTS['server']}:8443"
    processes: list[subprocess.Popen[str]] = []

    def start_motet(host: str, *args: str) -> None:
        command = ["ip", "netns", "exec", find_namespace(host), sys.executable, "-m", "motet", *args]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))

    def wait_until(is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not is_true():
            for process in processes:
                assert process.poll() in (None, 0), process.communicate()[0]
            assert time.monotonic() < deadline, "timed out"
            time.sleep(0.02)

    key, certificate = str(certificates / "server.key"), str(certificates / "server.pem")
    try:
        tls = ["--key", key, "--cert", certificate]
        serve = ["serve", "toy-classification", *SETTINGS, "transport.anyone=true"]
        start_motet("server", *serve, "--bind", address, *tls, "--out", str(run))
        for host, clients in (("north", (0, 1)), ("south", (2, 3))):
            names = [arg for k in clients for arg in ("--name", f"client-{k}")]
            options = ["--ca", certificate, "--state-dir", str(tmp_path / host)]
            recipe = ["--recipe", "toy-classification", *SETTINGS]
            start_motet(host, "join", "--server", address, *recipe, *options, *names)
        wait_until(lambda: count_rounds(run) >= 1)
        ip("-n", find_namespace("bridge"), "link", "set", "south", "down")
        rounds_done = count_rounds(run)
        assert rounds_done < 6
        keepalive_expired = time.monotonic() + 40
        run_recipe(load_recipe("toy-classification", [*SETTINGS, "transport.workers=0"]), tmp_path / "in_process")
        time.sleep(max(0.0, keepalive_expired - time.monotonic()))
        assert count_rounds(run) <= rounds_done + 1  # the server waits for the lost clients
        ip("-n", find_namespace("bridge"), "link", "set", "south", "up")
        outputs = [process.communicate(timeout=240)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], outputs
        # Before a client has joined, the server may not have been listening yet.
        _, north, south = (output.partition("offered to the server")[2] for output in outputs)
        assert "no link to the server" in south
        assert "no link to the server" not in north
    finally:
        for process in processes:
            process.kill()
            process.wait()
    remote, in_process = (
        load_file(folder / "model" / "model.safetensors") for folder in (run, tmp_path / "in_process")
    )
    assert all(remote[name].equal(in_process[name]) for name in in_process)
    assert json.loads((run / "summary.json").read_text())["lost"] == []
