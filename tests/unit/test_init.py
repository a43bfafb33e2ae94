"""`motet init`: what it refuses, what it asks for, and that it overwrites nothing."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from typer.testing import CliRunner

from motet.cli import app
from motet.core.errors import ConfigError
from motet.experiment.deploy.allow_list import load_allowed
from motet.experiment.deploy.certificates import create_certificates
from motet.experiment.deploy.invitation import Invitation
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.transport.admission import hash_token

NAMES = ("north", "south", "east")
SILOS = [word for name in NAMES for word in ("--silo", name)]
PEM = "-----BEGIN CERTIFICATE-----\n"
INVITATION = Invitation("north", "fl.example.org:8443", NAMES, "tiny", "token", PEM)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"letter {k},{'yes' if k % 2 else 'no'}" for k in range(8)]
    Path("letters.csv").write_text("\n".join(["text,label", *rows]))
    INVITATION.write(Path("north.yaml"))
    return tmp_path


def init(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--silo", "a", "--silo", "b", "--silo", "c"],
            "--host is missing; pass it, or run this command in a terminal",
        ),
        (["--host", "h", "--silo", "a", "--silo", "b"], r"2 silos are given (a, b); a secure sum needs at least 3"),
        (["--host", "h", "--silo", "a", "--silo", "../b", "--silo", "c"], "'../b' cannot be the name of a silo"),
        (["--host", "h", "--silo", "a", "--silo", "a", "--silo", "c"], "two silos have the same name"),
        (["--host", "h", *SILOS, "secure=none"], "secure.type is none"),
        (["--host", "h", *SILOS, "--data", "nowhere.csv"], "'nowhere.csv' does not exist"),
        (["--host", "h", *SILOS, "data.label=verdict"], "verdict"),
        (["--host", "h", *SILOS, "rounds=many"], "rounds"),
    ],
)
def test_a_server_with_wrong_settings_is_refused_before_anything_is_written(
    arguments: list[str], message: str, folder: Path
) -> None:
    data = [] if "--data" in arguments else ["--data", "letters.csv"]
    code, output = init("server", "pilot", *data, *arguments)
    assert (code, message in output) == (2, True), output
    assert not (folder / "pilot").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "west"}, "'west', who is not among its silos"),
        ({"server": "fl.example.org"}, "expected its host and port"),
        ({"ca": "secret"}, "no certificate"),
        ({"silos": ["north", "-x", "y"]}, "'-x' cannot be the name"),
        ({"more": 1}, "unknown option 'more'"),
        (None, "is not an invitation"),
    ],
)
def test_a_wrong_invitation_is_explained(changes: dict[str, object] | None, message: str, folder: Path) -> None:
    fields = yaml.safe_load(Path("north.yaml").read_text())
    Path("wrong.yaml").write_text(yaml.safe_dump(None if changes is None else {**fields, **changes}))
    code, output = init("silo", "north", "--invitation", "wrong.yaml", "--data", "letters.csv")
    assert (code, message in output) == (2, True), output
    assert not (folder / "north").exists()


def test_another_silo_is_invited_to_a_server_that_exists(folder: Path) -> None:
    arguments = ("--host", "fl.example.org", "--port", "9000", *SILOS, "--data", "letters.csv", "model.name=tiny")
    assert init("server", "pilot", *arguments)[0] == 0
    allowed = load_allowed("pilot/allowed.yaml")
    code, output = init("invitation", "pilot", "--silo", "west")
    assert (code, "pilot/silos/west.yaml to west, who runs: motet init silo west" in output) == (0, True), output
    west, north = (Invitation.read(Path(f"pilot/silos/{name}.yaml")) for name in ("west", "north"))
    assert west == replace(north, name="west", silos=(*sorted(NAMES), "west"), token=west.token)
    assert load_allowed("pilot/allowed.yaml") == allowed | {"west": hash_token(west.token)}


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (("pilot", "--silo", "north"), {}, "'north' has a token in"),
        (("pilot", "--silo", "west", "--silo", "north"), {}, "'north' has a token in"),
        (("pilot", "--silo", "../west"), {}, "'../west' cannot be the name"),
        (("pilot",), {}, "--silo is missing"),
        (("elsewhere", "--silo", "west"), {}, "does not exist"),
        (("pilot", "--silo", "west"), {"type": "mqtt"}, "serves over mqtt"),
        (("pilot", "--silo", "west"), {"cert": None}, "transport.cert=None"),
    ],
)
def test_an_invitation_that_cannot_work_changes_nothing(
    arguments: tuple[str, ...], changes: dict[str, object], message: str, folder: Path
) -> None:
    assert init("server", "pilot", "--host", "h", *SILOS, "--data", "letters.csv", "model.name=tiny")[0] == 0
    recipe = yaml.safe_load(Path("pilot/recipe.yaml").read_text())
    Path("pilot/recipe.yaml").write_text(yaml.safe_dump({**recipe, "transport": {**recipe["transport"], **changes}}))
    allowed = Path("pilot/allowed.yaml").read_bytes()
    code, output = init("invitation", *arguments)
    assert (code, message in output) == (2, True), output
    assert Path("pilot/allowed.yaml").read_bytes() == allowed
    assert sorted(path.stem for path in Path("pilot/silos").iterdir()) == sorted(NAMES)


def test_nothing_is_overwritten(folder: Path) -> None:
    Path("silo").mkdir()
    Path("silo/notes").write_text("mine")
    code, output = init("silo", "data.text=text", "--invitation", "north.yaml", "--data", "letters.csv")
    assert (code, "'silo' is not empty" in output) == (2, True), output
    assert [path.name for path in Path("silo").iterdir()] == ["notes"]


@pytest.mark.parametrize(("options", "noise", "epsilon"), [([], ("any",), None), (["--max-epsilon", "4"], None, 4.0)])
def test_the_silo_decides_about_noise(
    options: list[str], noise: tuple[str] | None, epsilon: float, folder: Path
) -> None:
    code, output = init("silo", "north", "--invitation", "north.yaml", "--data", "letters.csv", *options)
    assert code == 0, output
    policy = JoinPolicy.load(Path("north/policy.yaml"))
    assert (policy.noise, policy.max_epsilon) == (noise or ("distributed", "local"), epsilon)
    assert policy.identities
    assert not policy.allows_plain_updates


def test_on_a_terminal_missing_values_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["fl.example.org 10.0.0.7", " ".join(NAMES), "letters.csv"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda question: next(answers))
    from motet.cli.init import server

    server(Path("pilot"), ["model.name=tiny"], host=None, port=8443, silo=None, data=None)
    assert [path.stem for path in sorted(Path("pilot/silos").iterdir())] == sorted(NAMES)
    assert Invitation.read(Path("pilot/silos/east.yaml")).server == "fl.example.org:8443"


def test_a_certificate_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    create_certificates(tmp_path, ["fl.example.org", "::1"])
    authority, first = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    with pytest.raises(ConfigError, match=r"exists already. To replace it: motet certificate .* --rotate"):
        create_certificates(tmp_path, ["fl.example.org"])
    create_certificates(tmp_path, ["fl.example.org"], replace=True)
    second = (tmp_path / "server.pem").read_bytes()
    assert second != first
    assert (tmp_path / "ca.pem").read_bytes() == authority
    x509.load_pem_x509_certificate(second).verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    strict = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "server.pem"]  # as Python 3.13 does by default
    assert (
        subprocess.run(strict, check=False, cwd=tmp_path, capture_output=True, text=True).stdout == "server.pem: OK\n"
    )
    (tmp_path / "ca.key").unlink()
    with pytest.raises(ConfigError, match=r"has ca.pem but not ca.key"):
        create_certificates(tmp_path, ["fl.example.org"], replace=True)
