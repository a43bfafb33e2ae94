"""The state of a client on disk, encrypted with a key of the client."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.joined_clients import PLAIN, join, make_acceptance
from typer.testing import CliRunner

from motet.cli import app
from motet.core.errors import ConfigError, MotetError, RunError
from motet.core.params import Params
from motet.experiment.commands.model_export import export_models
from motet.experiment.deploy.audit_log import AUDIT_FILE
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.deploy.join_run import join_run
from motet.privacy.dp_sum import ClipRequest
from motet.transport.encrypted_files import CHUNK, MAGIC, TAG_BYTES, EncryptionKey, StateFiles
from motet.transport.requests import Request

KEY, OTHER_KEY = (EncryptionKey.parse(digit * 64) for digit in "ab")
SECRET = "a sentence of a patient"


def test_an_encrypted_value_of_any_size_is_read_again(tmp_path: Path) -> None:
    files = StateFiles(KEY)
    for size in (0, 1, CHUNK - 200, CHUNK, 2 * CHUNK + 5):
        value = {"text": SECRET, "numbers": torch.arange(size, dtype=torch.uint8)}
        files.save(tmp_path / "file", value)
        loaded = files.load(tmp_path / "file")
        assert loaded["text"] == SECRET
        assert torch.equal(loaded["numbers"], value["numbers"])
        assert SECRET.encode() not in (tmp_path / "file").read_bytes()


def _swap_chunks(data: bytes) -> bytes:
    start, size = len(MAGIC) + 16, CHUNK + TAG_BYTES
    return data[:start] + data[start + size : start + 2 * size] + data[start : start + size] + data[start + 2 * size :]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: data[:-1],
        lambda data: data[: len(MAGIC) + 16 + CHUNK + TAG_BYTES],  # cut after the first chunk
        lambda data: data[: len(MAGIC) + 3],
        lambda data: data + b"\0",
        _swap_chunks,
    ],
    ids=["changed", "shortened", "cut", "cut in the header", "longer", "reordered"],
)
def test_a_changed_file_is_noticed(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    files, path = StateFiles(KEY), tmp_path / "file"
    files.save(path, torch.zeros(3 * CHUNK, dtype=torch.uint8))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RunError, match=r"cannot be decrypted\. It was written with another --state-key, or somebody"):
        files.load(path)


def test_a_file_cannot_be_replaced_by_another_one_or_by_plain_text(tmp_path: Path) -> None:
    files = StateFiles(KEY)
    files.save(tmp_path / "one", 1)
    (tmp_path / "one").rename(tmp_path / "two")
    with pytest.raises(RunError, match="cannot be decrypted"):
        files.load(tmp_path / "two")
    StateFiles().save(tmp_path / "plain", 1)
    with pytest.raises(RunError, match="is not encrypted, although there is a state key"):
        files.load(tmp_path / "plain")
    with pytest.raises(ConfigError, match="is encrypted"):
        StateFiles().load(tmp_path / "two")


def test_a_state_folder_belongs_to_one_key(tmp_path: Path) -> None:
    StateFiles(KEY).check_folder(tmp_path)
    StateFiles(KEY).check_folder(tmp_path)
    for files in (StateFiles(OTHER_KEY), StateFiles()):
        with pytest.raises(MotetError, match="--state-key"):
            files.check_folder(tmp_path)
    (tmp_path / "old" / "run").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"has the state of runs without encryption \(run\)"):
        StateFiles(KEY).check_folder(tmp_path / "old")


def test_a_client_with_a_key_stores_nothing_that_can_be_read_and_continues_after_a_restart(tmp_path: Path) -> None:
    noise = {"type": "local", "clip": 1.0, "noise": 1.0}
    acceptance = make_acceptance(tmp_path / "server", algorithm="ditto", privacy=noise)
    client = join(tmp_path, acceptance, state_key=KEY)
    params: Params = client.model
    first = client.ask("private.clipped", ClipRequest("ditto.train", params), round=0)
    assert client.ask("deliver.receive", client.evaluation(), round=0).error is None
    assert first.error is None, first.error
    run_folder = client.builder.run_folder or tmp_path
    client.builder.close()
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file() and path.name != AUDIT_FILE]
    assert {path.parent.name for path in written} == {run_folder.name, "models"}
    assert "noise_key" not in {path.name for path in written}
    assert all(path.read_bytes().startswith(MAGIC) for path in written)

    restarted = join(tmp_path, acceptance, state_key=KEY)
    request = Request(id=9, client="north", round=0, address="", payload=None)
    restarted.setup.journal.begin_request(request)
    assert restarted.setup.journal.get("ditto", "north").personal.layout == params.layout
    repeated = restarted.ask("private.clipped", ClipRequest("ditto.train", params), round=0, request_id=1)
    assert torch.equal(repeated.value.value.flat, first.value.value.flat)  # the same noise
    restarted.builder.close()

    export_models(tmp_path / "state", tmp_path / "model", state_key=KEY)
    for key, message in ((None, "is encrypted"), (OTHER_KEY, "cannot be decrypted")):
        with pytest.raises(MotetError, match=message):
            export_models(tmp_path / "state", tmp_path / "none", state_key=key)


def test_a_policy_can_demand_an_encrypted_state(tmp_path: Path) -> None:
    options = join(tmp_path, make_acceptance(tmp_path / "server"), policy=PLAIN).builder.options
    strict = JoinPolicy(encrypted_state=True)
    with pytest.raises(ConfigError, match=r"policy.encrypted_state is true; pass the key"):
        join_run(replace(options, policy=strict), lambda: None, "", 0, print)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("source", "message"),
    [("@{}/short", "the state key has 4 characters"), ("MOTET_NO_SUCH_KEY", "which is not set"), ("@{}/no", "no'")],
)
def test_a_wrong_key_on_the_command_line_is_explained(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "short").write_text(secrets.token_hex(2))
    command = ["export", str(tmp_path), "--to", str(tmp_path / "to"), "--state-key", source.format(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code in (1, 2)
    assert message in result.output
