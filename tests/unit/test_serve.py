"""A served run says before it begins what cannot work with silos, and reads what it wrote down when it was younger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motet.core.errors import ConfigError
from motet.experiment.deploy.remote_client import (
    JoinOptions,
    build_client_federation,
    model_fingerprint,
    parse_client_data,
)
from motet.experiment.deploy.serve_join import serve
from motet.experiment.deploy.server import DeploymentRecord, NetworkOptions, open_listener
from motet.experiment.recipe.run_config import RunConfig

TOY = {
    "data": {"name": "toy-classification", "limit": 60, "test_limit": 24},
    "model": {"name": "tiny", "max_tokens": 16},
}


@pytest.mark.parametrize("who", [{"clients": 3}, {"allow": "allowed.yaml"}])
def test_silos_have_no_development_set_and_none_is_asked_of_them(who: dict[str, object], tmp_path: Path) -> None:
    given = {**TOY, "data": {**TOY["data"], "dev_share": 0.1}, "transport": {"type": "grpc", **who}}
    with pytest.raises(ConfigError, match=r"data.dev_share is 0.1.*leave it out"):
        serve(RunConfig.from_settings("r", given), tmp_path / "run", resume=False, told=print)
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_served_before_there_were_groups_can_be_served_again(tmp_path: Path) -> None:
    (tmp_path / "deployment.json").write_text(json.dumps({"run": "0123abcd", "clients": ["north"]}))
    book = DeploymentRecord.open(tmp_path)
    assert (book.run, book.clients, book.groups) == ("0123abcd", ["north"], {})


def test_silos_of_one_group_must_have_the_model_of_the_group(tmp_path: Path) -> None:
    """The server's own may be another."""
    given = {
        **TOY,
        "groups": [{"name": "letters", "model": {"name": "bilstm"}}],
        "transport": {"type": "grpc", "clients": 1},
    }
    config = RunConfig.from_settings("r", given)
    office = open_listener(config, tmp_path, NetworkOptions(clients=1))
    try:
        door = office.links.admission
        labels = office.here.groups[0].task.labels
        rows = [f"word {k},{labels[k % len(labels)]}" for k in range(20)]
        (tmp_path / "own.csv").write_text("\n".join(["text,label", *rows]))
        own = JoinOptions(("north",), parse_client_data(tmp_path / "own.csv", []), None, tmp_path)
        assert door.expected_fingerprint("north") == model_fingerprint(
            build_client_federation(config, door.acceptance, own).model
        )
    finally:
        office.links.close()
