"""Server and clients on separate hosts: network namespaces on one bridge, with TLS."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.motet_process import MotetProcess, count_rounds, wait_for_rounds, wait_until

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
NETWORK_NAMESPACE = 0x40000000  # CLONE_NEWNET
KEEPALIVE = {"grpc.keepalive_time_ms": 1000, "grpc.http2.min_ping_interval_without_data_ms": 100}


def enter_host(namespace: str) -> None:
    """Move this process to a host, and let it notice a dead link 20 seconds earlier than a user's would."""
    from motet.transport import grpc

    with Path(f"/var/run/netns/{namespace}").open() as file:
        assert ctypes.CDLL(None, use_errno=True).setns(file.fileno(), NETWORK_NAMESPACE) == 0, ctypes.get_errno()
    for options in (grpc._OPTIONS, grpc._SERVER_OPTIONS):
        options[:] = [(name, KEEPALIVE.get(name, value)) for name, value in options]


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


def test_a_run_survives_a_link_that_goes_down_in_a_round(
    find_namespace: Callable[[str], str], certificates: Path, tmp_path: Path
) -> None:
    run, address = tmp_path / "run", f"{HOSTS['server']}:8443"
    processes: list[MotetProcess] = []

    def start_motet(host: str, *args: str) -> None:
        prepare = partial(enter_host, find_namespace(host))
        processes.append(MotetProcess(*args, errors_to_output=True, prepare=prepare))

    key, certificate = str(certificates / "server.key"), str(certificates / "server.pem")
    try:
        tls = ["--key", key, "--cert", certificate]
        serve = ["serve", "toy-classification", *SETTINGS, "transport.allow_anyone=true"]
        start_motet("server", *serve, "--bind", address, *tls, "--out", str(run))
        for host, clients in (("north", (0, 1)), ("south", (2, 3))):
            names = [arg for k in clients for arg in ("--name", f"client-{k}")]
            options = ["--ca", certificate, "--state-dir", str(tmp_path / host)]
            recipe = ["--recipe", "toy-classification", *SETTINGS]
            start_motet(host, "join", "--server", address, *recipe, *options, *names)
        wait_for_rounds(run, 1, *processes)
        ip("-n", find_namespace("bridge"), "link", "set", "south", "down")
        rounds_done = count_rounds(run)
        assert rounds_done < 6
        run_recipe(load_recipe("toy-classification", [*SETTINGS, "transport.workers=0"]), tmp_path / "in_process")
        south = processes[2]
        wait_until(
            lambda: "no link to the server" in south.read_output()[0].partition("offered to the server")[2], *processes
        )
        assert count_rounds(run) <= rounds_done + 1  # the server waits for the lost clients
        ip("-n", find_namespace("bridge"), "link", "set", "south", "up")
        outputs = [process.communicate(timeout=240)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], outputs
        # Before a client has joined, the server may not have been listening yet.
        assert "no link to the server" not in outputs[1].partition("offered to the server")[2]
    finally:
        for process in processes:
            process.kill()
    remote, in_process = (
        load_file(folder / "model" / "model.safetensors") for folder in (run, tmp_path / "in_process")
    )
    assert all(remote[name].equal(in_process[name]) for name in in_process)
    assert json.loads((run / "summary.json").read_text())["lost"] == []
