"""What a client with its own data reveals through evaluation, whatever a server asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.joined_clients import JoinedClient, join, make_acceptance

from motet.core.errors import ConfigError
from motet.experiment.commands.serve_run import serve_run
from motet.experiment.deploy.client_models import has_client_models
from motet.experiment.recipe.run_config import RunConfig


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> JoinedClient:
    folder = tmp_path_factory.mktemp("client")
    return join(folder, make_acceptance(folder / "server"))


@pytest.mark.parametrize("address", ["evaluate.report_examples", "evaluate_examples.report_examples"])
def test_a_server_cannot_read_a_row_per_example(client: JoinedClient, address: str) -> None:
    """Crafted weights and rows of the training split once gave the training texts word for word."""
    reply = client.ask(address, client.evaluation("train"))
    assert reply.value is None
    assert "not offered to the server" in (reply.error or "")


@pytest.mark.parametrize("address", ["evaluate.report_metrics", "evaluate.sum_metrics"])
@pytest.mark.parametrize("split", ["train", "global", "union"])
def test_a_model_is_evaluated_on_the_test_split_alone(client: JoinedClient, address: str, split: str) -> None:
    """Exact counts over training texts told how many of them contain a word."""
    reply = client.ask(address, client.evaluation(split), round=client.next_id)
    assert reply.value is None
    assert "this client evaluates models only on test" in (reply.error or "")


def test_the_test_split_can_be_evaluated(client: JoinedClient) -> None:
    scores = client.ask("evaluate.report_metrics", client.evaluation(), round=client.next_id).value
    assert 0 <= scores["accuracy"] <= 1


@pytest.mark.parametrize("privacy", ["local", "central"])
def test_a_client_reveals_no_metric_under_noise_but_keeps_its_model(tmp_path: Path, privacy: str) -> None:
    """The privacy accountant counts noisy sums of updates, and exact metrics would not be covered by ε."""
    noise = {"type": privacy, "clip": 1.0, "noise": 1.0}
    client = join(tmp_path, make_acceptance(tmp_path / "server", privacy=noise))
    reply = client.ask("evaluate.sum_metrics", client.evaluation())
    assert "not offered to the server" in (reply.error or "")
    assert isinstance(client.ask("evaluate.report_metrics", client.evaluation()).error, str)
    delivery = client.ask("deliver.receive", client.evaluation())
    assert (delivery.value, delivery.error) == (None, None)
    assert has_client_models(client.builder.run_folder or tmp_path), "the client keeps the model, and its scores"


def test_a_served_run_does_not_ask_for_rows_per_example(tmp_path: Path) -> None:
    settings = {"evaluation": {"save_example_scores": True}, "transport": {"type": "grpc", "clients": 3}}
    with pytest.raises(ConfigError, match=r"save_example_scores is true.*never send a row per example"):
        serve_run(RunConfig.from_settings("r", settings), tmp_path / "run", resume=False, log=print)
