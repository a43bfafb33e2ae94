"""Tokens of clients are created, rotated and revoked in a file that only its owner can read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from motet.cli import app
from motet.core.errors import ConfigError
from motet.experiment.deploy.allow_list import AllowList, add_clients, load_allowed, revoke_clients
from motet.experiment.deploy.join_secret import derive_join_token
from motet.transport.admission import hash_token


def test_the_commands_create_rotate_and_revoke_tokens(tmp_path: Path) -> None:
    path = tmp_path / "allowed.yaml"

    def allow(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["allow", str(path), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    first = allow("north", "south").splitlines()[0].removeprefix("north: ")
    assert load_allowed(str(path))["north"] == hash_token(first)
    second = allow("north", "--rotate").strip().removeprefix("north: ")
    assert load_allowed(str(path))["north"] == hash_token(second) != hash_token(first)
    allow("north", "--revoke")
    assert [*load_allowed(str(path))] == ["south"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_is_not_replaced_by_accident(tmp_path: Path) -> None:
    path = tmp_path / "allowed.yaml"
    add_clients(path, ["north"])
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"'north' has a token .* --rotate"):
        add_clients(path, ["south", "north"])
    with pytest.raises(ConfigError, match=r"'west' is not in .*; it has: north"):
        add_clients(path, ["west"], replace=True)
    with pytest.raises(ConfigError, match="'west' is not in"):
        revoke_clients(path, ["west"])
    assert path.read_bytes() == before


def test_a_running_server_sees_every_change_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "allowed.yaml"
    tokens = add_clients(path, ["north", "south"])
    allowed = AllowList(path)
    assert allowed.refresh() == {name: hash_token(token) for name, token in tokens.items()}
    revoke_clients(path, ["south"])
    assert [*allowed.refresh()] == ["north"]
    path.write_text("not a list")
    for _ in range(3):
        assert allowed.refresh() == {}
    assert [record.message for record in caplog.records] == [
        f"no client is allowed any more: transport.allow: '{path}' must map names to hashes of tokens; "
        f"create it with: motet allow {path} NAME…"
    ]
    path.write_text(yaml.safe_dump({"north": hash_token("x")}))
    assert [*allowed.refresh()] == ["north"]
    path.unlink()
    assert allowed.refresh() == {}


def test_a_client_without_a_token_has_its_own_for_each_server(tmp_path: Path) -> None:
    token = derive_join_token(tmp_path / "state", "fl.example.org:8443")
    assert derive_join_token(tmp_path / "state", "fl.example.org:9000") == token  # the server moved to another port
    assert derive_join_token(tmp_path / "state", "other.example.org:8443") != token
    assert derive_join_token(tmp_path / "other", "fl.example.org:8443") != token
    assert stat.S_IMODE((tmp_path / "state" / "join_secret").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["join_secret"]
