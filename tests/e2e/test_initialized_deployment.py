"""`motet init` writes a deployment that works: a server and three silos, under TLS and secure sums with identities."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import stat
import time
from pathlib import Path

from tests.motet_process import MotetProcess
from tests.networks import find_free_port
from typer.testing import CliRunner

from motet.cli import app

SILOS = ("north", "south", "east")
COLUMNS = ("data.text=body", "data.label=verdict")
MODEL = ("model.name=tiny", "model.max_tokens=16", "solver.lr=0.05", "solver.batch=8", "rounds=2")


def write_letters(folder: Path, name: str) -> None:
    rows = [f"{name} letter {k} {'good fine' if k % 2 else 'bad poor'},{'yes' if k % 2 else 'no'}" for k in range(24)]
    (folder / f"{name}.csv").write_text("\n".join(["body,verdict", *rows]))


def init(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["init", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def start_printed_commands(output: str) -> MotetProcess:
    """Type what `motet init` printed at its end: a change of folder, and a command that runs until the run is over."""
    change, command = (shlex.split(line) for line in output.splitlines()[-2:])
    assert (change[0], command[0]) == ("cd", "motet")
    environment = {"MOTET_LOG_FORMAT": "json"}
    return MotetProcess(*command[1:], folder=Path(change[1]), environment=environment, errors_to_output=True)


def wait_for_all(processes: list[MotetProcess]) -> list[str]:
    """Wait until all processes are done, or one has failed. Return what they printed."""
    deadline = time.monotonic() + 240
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        if any(p.poll() not in (None, 0) for p in processes):
            break
        time.sleep(0.05)
    for process in processes:
        process.kill()
    return [process.communicate()[0] for process in processes]


def test_the_printed_commands_start_a_federation_under_tls_and_secure_sums(tmp_path: Path) -> None:
    for name in ("public", *SILOS):
        write_letters(tmp_path, name)
    names = [word for name in SILOS for word in ("--silo", name)]
    address = ["--host", "localhost", "--port", str(find_free_port())]
    options = [*address, *names, "--data", str(tmp_path / "public.csv"), *COLUMNS, *MODEL]
    outputs = {"pilot": init("server", str(tmp_path / "pilot"), *options)}
    for name in SILOS:
        invitation = re.search(rf"(\S+) to {name}, who runs", outputs["pilot"])
        assert invitation is not None
        options = ["--invitation", invitation[1], "--data", str(tmp_path / f"{name}.csv"), *COLUMNS]
        outputs[name] = init("silo", str(tmp_path / name), *options)
    for name in SILOS:
        for other in SILOS:
            if other != name:
                shutil.copy(tmp_path / name / "keys" / f"{name}.pub", tmp_path / other / "keys")
    check_secrets(tmp_path, outputs)

    processes = [start_printed_commands(output) for output in outputs.values()]
    logs = wait_for_all(processes)
    assert [process.returncode for process in processes] == [0] * 4, "\n".join(logs)
    summary = json.loads((tmp_path / "pilot" / "runs" / "pilot" / "summary.json").read_text())
    assert (summary["rounds"], summary["clients"], summary["lost"]) == (2, 3, [])
    assert all("secagg over at least 3 clients" in log for log in logs[1:])
    check_secrets(tmp_path, dict(zip(outputs, logs, strict=True)))
    check_json_lines(logs[0])
    again = start_printed_commands(outputs["pilot"])
    assert "The run in runs/pilot is finished" in again.communicate(timeout=60)[0]
    assert again.returncode == 0


def check_json_lines(log: str) -> None:
    """Every line of a server is a JSON object, with fields for rounds, scores and clients."""
    lines = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    complete = [line for line in lines if line["message"].endswith("is complete")]
    assert [(line["round"], line["rounds"]) for line in complete] == [(1, 2), (2, 2)]
    assert all(0 <= line["scores"]["accuracy"] <= 1 and line["bytes_up"] > 0 for line in complete)
    assert {line["client"] for line in lines if line["message"].endswith("is connected")} == set(SILOS)
    assert (lines[-1]["message"], lines[-1]["folder"]) == ("the run is finished", "runs/pilot")


def check_secrets(folder: Path, outputs: dict[str, str]) -> None:
    """Private files can be read only by their owner, and no secret was printed."""
    private = [
        *(folder / "pilot" / name for name in ("ca.key", "server.key", "allowed.yaml")),
        *(folder / "pilot" / "silos").iterdir(),
        *(folder / name / "token" for name in SILOS),
        *(folder / name / "keys" / f"{name}.key" for name in SILOS),
    ]
    assert [stat.S_IMODE(path.stat().st_mode) for path in private] == [0o600] * len(private)
    assert not list((folder / "pilot").rglob("north.key")), "a silo creates its key itself"
    secrets = [(folder / name / file).read_text().strip() for name in SILOS for file in ("token", f"keys/{name}.key")]
    assert not [secret for secret in secrets for output in outputs.values() if secret in output]
    assert "PRIVATE" not in "".join(outputs.values())
