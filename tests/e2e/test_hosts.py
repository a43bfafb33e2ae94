"""Server and silos on hosts of their own, as far as their network can tell: namespaces joined by a bridge, over TLS."""

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

from motet.experiment.commands.run_folder import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

SETTINGS = [
    "rounds=6",
    "data.limit=300",
    "data.test_limit=40",
    "partition.clients=4",
    "wait_policy.absence=300",
    "device=cpu",
]
HOSTS = {"server": "10.77.31.1", "north": "10.77.31.2", "south": "10.77.31.3"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[Callable[[str], str]]:
    """Three hosts on one wire; what is given says a host's namespace."""
    mark = f"motet{os.getpid() % 100000}"
    try:
        ip("netns", "add", f"{mark}-wire")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces are not permitted here ({getattr(error, 'stderr', None) or error})")
    made = [f"{mark}-wire"]
    try:
        ip("-n", f"{mark}-wire", "link", "add", "bridge", "type", "bridge")
        ip("-n", f"{mark}-wire", "link", "set", "bridge", "up")
        for name, address in HOSTS.items():
            space = f"{mark}-{name}"
            ip("netns", "add", space)
            made.append(space)
            ip("-n", f"{mark}-wire", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", f"{mark}-wire", "link", "set", name, "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", space, "link", "set", device, "up")
        yield lambda name: f"{mark}-{name}"
    finally:
        for space in reversed(made):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """The server's certificate, and its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=server", "-addext", f"subjectAltName=IP:{HOSTS['server']}")
    words = ["openssl", "req", "-x509", *curve, *names, "-keyout", "server.key", "-out", "server.pem"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def rounds(run: Path) -> int:
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
    return max((row["round"] for row in rows), default=0)


def test_a_link_that_goes_down_in_a_round_and_comes_back(
    hosts: Callable[[str], str], papers: Path, tmp_path: Path
) -> None:
    run, at = tmp_path / "run", f"{HOSTS['server']}:8443"
    started: list[subprocess.Popen[str]] = []

    def motet(host: str, *words: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", hosts(host), sys.executable, "-m", "motet", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    def until(true: Callable[[], bool]) -> None:
        limit = time.monotonic() + 240
        while not true():
            for process in started:
                assert process.poll() in (None, 0), process.communicate()[0]
            assert time.monotonic() < limit, "it never came"
            time.sleep(0.02)

    tls = ["--key", str(papers / "server.key"), "--cert", str(papers / "server.pem")]
    try:
        motet("server", "serve", "toy-classification", *SETTINGS, "--bind", at, *tls, "--out", str(run))
        for silo, names in (("north", (0, 1)), ("south", (2, 3))):
            own = [word for k in names for word in ("--name", f"client-{k}")]
            known = ["--ca", str(papers / "server.pem"), "--memory", str(tmp_path / silo)]
            motet(silo, "join", "--server", at, "--recipe", "toy-classification", *SETTINGS, *known, *own)
        until(lambda: rounds(run) >= 1)
        ip("-n", hosts("wire"), "link", "set", "south", "down")
        seen = rounds(run)
        assert seen < 6
        until_noticed = time.monotonic() + 40  # longer than the keep-alive takes to see that nobody is there
        run_recipe(load_recipe("toy-classification", [*SETTINGS, "transport.workers=0"]), tmp_path / "whole")
        time.sleep(max(0.0, until_noticed - time.monotonic()))
        assert rounds(run) <= seen + 1  # the others wait for it
        ip("-n", hosts("wire"), "link", "set", "south", "up")
        said = [process.communicate(timeout=240)[0] for process in started]
        assert [process.returncode for process in started] == [0, 0, 0], said
        since = [
            text.partition("offered to the server")[2] for text in said
        ]  # before that the server may not have listened
        assert "no link to the server" in since[2]
        assert "no link to the server" not in since[1]
    finally:
        for process in started:
            process.kill()
            process.wait()
    there, here = (load_file(folder / "model" / "model.safetensors") for folder in (run, tmp_path / "whole"))
    assert all(there[name].equal(here[name]) for name in here)
    assert json.loads((run / "summary.json").read_text())["lost"] == []
