"""A client's policy: which runs of a server it refuses, and which requests of a run that it joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.joined_clients import PLAIN, SMALL, JoinedClient, join, make_acceptance, write_texts

from motet.cli.policy import init
from motet.core.errors import ConfigError, PrivacyError, RunError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.datasets.load_corpus import DataConfig
from motet.experiment.deploy.audit_log import AUDIT_FILE, read_audit_log
from motet.experiment.deploy.join_policy import JoinPolicy, choose_policy
from motet.experiment.deploy.join_run import join_run
from motet.experiment.deploy.policy_file import strict_policy
from motet.experiment.deploy.remote_client import ClientBuilder, JoinOptions
from motet.experiment.deploy.work_limit import count_tokens
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.jobs import Infer
from motet.learning.objectives.completion import GeneratedCompletions
from motet.learning.objectives.readouts import GeneratedTokens
from motet.privacy.dp_sum import ClipRequest
from motet.secure.sum_messages import UploadRequest
from motet.transport.admission import JoinAccepted
from motet.transport.client_connection import ClientConnection
from motet.transport.requests import Request, ValueWithUtility
from motet.wire import serialize

LOCAL_NOISE = {"type": "local", "clip": 1.0, "noise": 1.0}
UNVERIFIED = JoinPolicy(identities=False)
REPORTING = {"size": 3, "sampler": "oort", "oort": {"report_utility": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


def refuse(folder: Path, policy: JoinPolicy, **sections: Any) -> str:
    """Return the message with which a client of this policy refuses a run."""
    with pytest.raises(PrivacyError, match="this client's policy refuses the run") as error:
        join(folder, make_acceptance(folder / "server", **sections), policy=policy)
    return str(error.value)


def test_plain_updates_are_refused_unless_the_person_allows_them_by_name(folder: Path) -> None:
    assert "--allow-plain-updates" in refuse(folder, JoinPolicy())
    allowed = choose_policy(None, allow_plain_updates=True, allow_unverified_peers=False, allow_models=[])
    assert not allowed.report_utility
    assert join(folder / "plain", make_acceptance(folder / "server"), policy=allowed).setup.fingerprint


@pytest.mark.parametrize(
    ("policy", "sections", "message"),
    [
        (JoinPolicy(), {"secure": "secagg"}, "--identities FOLDER"),
        (UNVERIFIED, {"secure": {"type": "secagg", "seeded": True}}, "secure.seeded is true"),
        (UNVERIFIED, {"secure": {"type": "secagg_plus", "neighbors": 2}}, "secure.neighbors is 2"),
        (UNVERIFIED, {"secure": {"type": "secagg_plus", "dropouts": 0.0}}, "secure.dropouts is 0.0; at least 0.3"),
        (UNVERIFIED, {"secure": {"type": "secagg", "threshold": 0.5}}, "secure.threshold is 0.5; at least 0.66"),
        (UNVERIFIED, {"secure": {"type": "light_secagg", "threshold": 0.6}}, "secure.threshold is 0.6; at least 0.7"),
        (UNVERIFIED, {"secure": {"type": "light_secagg", "colluders": 0.1}}, "secure.colluders is 0.1"),
        (JoinPolicy(protocols=("secagg",)), {"secure": "light_secagg"}, "secure.type is light_secagg"),
        (UNVERIFIED, {"secure": "secagg", "algorithm": "percfl"}, "the server would read each reply of percfl.train"),
        (JoinPolicy(algorithms=("fedopt",)), {"secure": "secagg"}, "the algorithm is fedavg"),
        (JoinPolicy(methods=("fedopt.train",)), {"secure": "secagg"}, "fedavg.train is not among policy.methods"),
        (JoinPolicy(noise=("distributed",)), {"secure": "secagg"}, "privacy.type is none"),
        (JoinPolicy(min_noise=2.0), {"privacy": LOCAL_NOISE}, "privacy.noise is 1; policy.min_noise is 2"),
        (JoinPolicy(), {"privacy": {**LOCAL_NOISE, "seeded": True}}, "privacy.seeded is true"),
        (JoinPolicy(max_epsilon=8.0), {}, "there is no noise, so ε has no limit"),
        (JoinPolicy(max_rounds=9), {}, "the run has 10 rounds; policy.max_rounds is 9"),
        (PLAIN, {"cohort": REPORTING}, "allow it with --allow-utility-reports"),
        (
            JoinPolicy(report_utility=True),
            {"cohort": REPORTING, "secure": "secagg"},
            "losses that secure sums and noise",
        ),
        (JoinPolicy(report_utility=True), {"cohort": REPORTING, "privacy": LOCAL_NOISE}, "losses that secure sums and"),
    ],
)
def test_a_weaker_run_is_refused(folder: Path, policy: JoinPolicy, sections: dict[str, Any], message: str) -> None:
    if "identities" not in message and "secure" in sections:
        policy = JoinPolicy(**{**vars(policy), "identities": False})
    if sections.get("algorithm") == "percfl":
        assert message in _refuse_single_replies(folder, policy)
    else:
        assert message in refuse(folder, policy, **sections)


def _refuse_single_replies(folder: Path, policy: JoinPolicy) -> str:
    """A server leaves the secure sum out, because its own checks would refuse the pair."""
    return refuse(folder, JoinPolicy(**{**vars(policy), "protocols": ("any",)}), algorithm="percfl")


def test_a_server_cannot_lower_the_number_of_clients_in_a_sum(folder: Path) -> None:
    acceptance = make_acceptance(folder / "server", secure={"type": "secagg", "min_clients": 1})
    client = join(folder / "minimum", acceptance, policy=UNVERIFIED)
    assert client.setup.runtime.programs["secure"].policy.min_clients == 3


def test_a_server_names_no_file_of_a_client_and_sends_none_of_its_own_paths(folder: Path, tmp_path: Path) -> None:
    """Identities once came from a folder that the server named."""
    (tmp_path / "far").mkdir()
    data = {"path": str(write_texts(tmp_path, ("no", "yes"))), "text": "text", "label": "label"}
    secure = {"type": "secagg", "identities": str(tmp_path / "far")}
    acceptance = make_acceptance(folder / "server", secure=secure, data=data)
    assert str(tmp_path).encode() not in bytes(serialize(acceptance))
    client = join(folder / "identities", acceptance, policy=UNVERIFIED)
    assert client.setup.runtime.programs["secure"].identities.folder is None


@pytest.mark.parametrize("name", ["organization/model", "/srv/model", "mixed:organization/model"])
def test_a_server_cannot_name_a_model_that_was_not_agreed(folder: Path, name: str) -> None:
    """Nothing is looked up, downloaded or loaded because a server names it."""
    acceptance = make_acceptance(folder / "server")
    config = {**acceptance.config, "model": {**acceptance.config["model"], "name": name}}
    with pytest.raises((PrivacyError, ConfigError), match=r"the server names the model|has digest"):
        join(folder, JoinAccepted(**{**vars(acceptance), "config": config}))
    with pytest.raises(PrivacyError, match="the server names the model"):
        PLAIN.check_model(type("Model", (), {"name": name})())


def test_a_model_is_pinned_by_the_hash_of_its_files() -> None:
    pinned = yaml.safe_load(strict_policy(["minilm", "tiny"]))["models"]
    assert pinned["tiny"] == "any"
    assert pinned["minilm"].startswith("sha256:")
    model = type("Model", (), {"name": "bert2bert:minilm"})()
    JoinPolicy(models=pinned).check_model(model)
    with pytest.raises(PrivacyError, match="the files of the model 'minilm' have hash"):
        JoinPolicy(models={"minilm": "sha256:0"}).check_model(model)


def test_a_policy_file_is_strict_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    init(path, ["tiny"])
    policy = JoinPolicy.load(path)
    assert set(yaml.safe_load(path.read_text())) == set(vars(policy))
    assert (policy.identities, policy.reveals, policy.protocols) == (True, "sums", ("secagg", "light_secagg"))
    with pytest.raises(SystemExit):
        init(path)
    with pytest.raises(ConfigError, match="--policy replaces"):
        choose_policy(path, allow_plain_updates=True, allow_unverified_peers=False, allow_models=[])
    path.write_text("protocol: secagg")
    with pytest.raises(ConfigError, match="unknown option 'protocol'"):
        JoinPolicy.load(path)


def test_a_policy_without_own_data_is_a_mistake(tmp_path: Path) -> None:
    config = RunConfig.from_settings("toy", {})
    options = JoinOptions(names=("north",), data=None, config=config, state_folder=tmp_path, policy=PLAIN)
    with pytest.raises(ConfigError, match="--policy and --allow-… protect your own texts"):
        join_run(options, lambda: pytest.fail("connected"), "", 0.0, print)


# ---- Requests of a run -----------------------------------------------------------------------------------------------


def join_plain(folder: Path, **policy: Any) -> JoinedClient:
    acceptance = make_acceptance(folder / "server", **policy.pop("sections", {}))
    return join(folder, acceptance, policy=JoinPolicy(**{**vars(PLAIN), **policy}))


def test_a_client_answers_a_round_once(tmp_path: Path) -> None:
    """The difference of two answers in a round, or of two sums over other clients, is the update of one client."""
    client = join_plain(tmp_path)
    first = client.ask("fedavg.train", client.model)
    assert "already answered fedavg.train in round 1" in (client.ask("fedavg.train", client.model * 1.01).error or "")
    again = client.ask("fedavg.train", client.model, request_id=1)
    assert serialize(again.value) == serialize(first.value)
    client.builder.close()
    restarted = join(tmp_path, client.acceptance)
    assert "already answered" in (restarted.ask("fedavg.train", client.model * 1.01).error or "")
    assert restarted.ask("fedavg.train", client.model * 1.01, round=1).error is None


def test_a_utility_leaves_only_if_the_run_asks_for_it_and_is_written_to_the_audit_log(tmp_path: Path) -> None:
    """The policy alone sends nothing. An evaluation has no utility."""
    silent = join_plain(tmp_path / "silent", report_utility=True)
    assert not isinstance(silent.ask("fedavg.train", silent.model).value, ValueWithUtility)
    client = join_plain(tmp_path / "asked", report_utility=True, sections={"cohort": REPORTING})
    reply = client.ask("fedavg.train", client.model).value
    assert isinstance(reply, ValueWithUtility)
    assert reply.utility > 0
    assert not isinstance(client.ask("evaluate.run", client.evaluation()).value, ValueWithUtility)
    sent = [entry for entry in read_audit_log(tmp_path / "asked" / "state" / AUDIT_FILE) if entry["event"] == "sent"]
    assert [entry.get("utility") for entry in sent] == [reply.utility, None]


def test_a_question_cannot_be_hidden_in_another_one(tmp_path: Path) -> None:
    """Clipping a clipped reply once was another question, so a server got two answers of each client in a round."""
    noise = {"type": "central", "clip": 1.0, "noise": 1.0}
    client = join_plain(tmp_path, sections={"privacy": noise})
    inner = ClipRequest("fedavg.train", client.model)
    for request, is_refused in ((ClipRequest("private.clipped", inner), True), (inner, False)):
        error = client.ask("private.clipped", request).error or ""
        assert ("private.clipped cannot run inside itself" in error) == is_refused


def test_a_client_signs_one_list_of_survivors_in_a_round(tmp_path: Path) -> None:
    client = join(tmp_path, make_acceptance(tmp_path / "server", secure="secagg"), policy=UNVERIFIED)
    guard = client.setup.runtime.guard
    assert guard is not None
    client.ask("secure.advertise", "fedavg.train")
    client.ask("secure.confirm", ("lake", "north", "south"))
    client.ask("secure.advertise", "fedavg.train")
    reply = client.ask("secure.confirm", ("lake", "north", "south", "wood"))
    assert "over other clients; the difference of the two sums" in (reply.error or "")
    assert "over other clients" not in (client.ask("secure.confirm", ("south", "north", "lake")).error or "")


def test_the_question_inside_a_secure_sum_is_asked_once_too(tmp_path: Path) -> None:
    client = join(tmp_path, make_acceptance(tmp_path / "server", secure="secagg"), policy=UNVERIFIED)
    for factor, is_refused in ((1.0, False), (2.0, True), (1.0, False)):
        client.ask("secure.advertise", "fedavg.train")
        reply = client.ask("secure.upload", UploadRequest({}, client.model * factor))
        assert ("already answered fedavg.train" in (reply.error or "")) == is_refused


def test_a_question_cannot_have_the_name_of_another_one(tmp_path: Path) -> None:
    """Some methods ignore their payload. With the request for a clipped reply as payload, they were other questions each time."""
    client = join(tmp_path, make_acceptance(tmp_path / "server", secure="secagg"), policy=UNVERIFIED)
    for name, is_refused in (("first", False), ("second", True)):
        client.ask("secure.advertise", "fedavg.train")
        reply = client.ask("secure.upload", UploadRequest({}, ClipRequest(name, None)))
        assert ("already answered fedavg.train" in (reply.error or "")) == is_refused


def test_a_client_evaluates_only_the_model_of_the_round(tmp_path: Path) -> None:
    """A server once evaluated crafted weights as often as it liked."""
    client = join_plain(tmp_path)
    assert client.ask("fedavg.train", client.model).error is None
    reply = client.ask("evaluate.report_metrics", client.evaluation(factor=2.0))
    assert "not the model of the round" in (reply.error or "")
    assert client.ask("evaluate.report_metrics", client.evaluation()).error is None
    # An evaluation that comes before the training of another model is the last one.
    assert client.ask("evaluate.report_metrics", client.evaluation(factor=2.0), round=1).error is None
    assert client.ask("fedavg.train", client.model * 3.0, round=1).error is None
    assert "not the model of the round" in (
        client.ask("evaluate.report_metrics", client.evaluation(), round=2).error or ""
    )


def test_rounds_and_bytes_are_limited(tmp_path: Path) -> None:
    client = join_plain(tmp_path / "rounds", rounds_per_day=1)
    assert client.ask("fedavg.train", client.model).error is None
    assert "its limit is 1" in (client.ask("fedavg.train", client.model, round=1).error or "")
    hasty = join_plain(tmp_path / "hasty", seconds_between_rounds=60.0)
    assert hasty.ask("fedavg.train", client.model).error is None
    assert "too early" in (hasty.ask("fedavg.train", client.model, round=1).error or "")
    large = join_plain(tmp_path / "bytes", bytes_per_day=1000)
    reply = large.ask("fedavg.train", client.model)
    assert reply.value is None
    assert "exceed this client's limit of 1000 bytes per day" in (reply.error or "")


def test_a_reply_that_is_sent_again_counts_again(tmp_path: Path) -> None:
    """A server that repeated a request got the same reply as often as it liked."""
    client = join_plain(tmp_path, bytes_per_day=60_000)
    connection = ClientConnection(pytest.fail, pytest.fail, pytest.fail)
    connection.setup = client.setup
    request = Request(1, "north", 0, "fedavg.train", client.model)
    errors = []
    for _ in range(4):
        connection._answer({"north": (("session", 1), request)})
        errors.append(connection.last_replies["north"][1].error or "")
    assert errors[0] == ""
    assert "limit of 60000 bytes per day" in errors[-1]


def test_a_server_cannot_run_more_rounds_than_were_agreed(tmp_path: Path) -> None:
    """Without noise, each further round reveals more."""
    client = join_plain(tmp_path, sections={"rounds": 3})
    for round in (-1, 3, 10**9):
        error = client.ask("fedavg.train", client.model, round=round).error or ""
        assert f"after {round} rounds, and this client agreed to a run of 3 rounds" in error
    assert client.ask("fedavg.train", client.model, round=2).error is None
    assert client.ask("evaluate.report_metrics", client.evaluation(), round=3).error is None  # of the last model
    assert "agreed to a run of 3" in (client.ask("evaluate.report_metrics", client.evaluation(), round=4).error or "")


def test_the_evaluation_after_the_last_round_is_no_further_round(tmp_path: Path) -> None:
    acceptance = make_acceptance(tmp_path / "server", rounds=3, secure="secagg")
    client = join(tmp_path, acceptance, policy=UNVERIFIED)
    for method, is_refused in (("fedavg.train", True), ("evaluate.sum_metrics", False)):
        assert client.ask("secure.advertise", f"{method}?0", round=3).error is None
        reply = client.ask("secure.upload", UploadRequest({}, client.model), round=3)
        assert ("agreed to a run of 3 rounds" in (reply.error or "")) == is_refused


def test_a_new_run_is_no_way_to_get_more_rounds(tmp_path: Path) -> None:
    """The rounds of a run were limited, but a server could start a new one."""
    client = join_plain(tmp_path, sections={"rounds": 2}, max_rounds=3)
    assert [client.ask("fedavg.train", client.model, round=round).error for round in range(2)] == [None, None]
    other = make_acceptance(tmp_path / "other", rounds=2)
    assert other.run != client.acceptance.run
    with pytest.raises(RunError, match="the server has begun another run"):
        client.builder(other)  # in the same process: a server could begin so many that their states fill the disk
    assert not (tmp_path / "state" / other.run).exists()
    client.builder.close()
    client = join(tmp_path, other, policy=client.builder.options.policy)
    assert client.ask("fedavg.train", client.model).error is None
    assert "3 rounds of all runs, and its limit is 3" in (client.ask("fedavg.train", client.model, round=1).error or "")
    assert client.ask("fedavg.train", client.model).error is None  # a round that has begun is repeated


@pytest.mark.parametrize(
    ("sections", "is_joined"),
    [
        ({"solver": {"epochs": 10**9}}, False),
        ({"solver": {"steps": 10**12, "batch": 10**9}}, False),
        ({"algorithm": "pfedme", "solver": {"epochs": 10**9, "optimizer": "sgd"}}, False),  # plans its steps itself
        ({"algorithm": {"type": "fedrep", "head_epochs": 10**9}}, True),
    ],
)
def test_a_server_cannot_ask_for_endless_work(tmp_path: Path, sections: dict[str, Any], is_joined: bool) -> None:
    if not is_joined:
        with pytest.raises(PrivacyError, match=r"one training of this run needs .* raise policy.tokens_per_round"):
            join_plain(tmp_path, sections=sections)
        return
    client = join_plain(tmp_path, sections=sections)
    error = client.ask("fedrep.train", client.model.select_layers(Layers.parse("embeddings", "layers"))).error or ""
    assert "round … needs … tokens of work, and this client's limit is …" in error  # no number of its texts


def test_all_jobs_of_a_round_count(tmp_path: Path) -> None:
    client = join_plain(tmp_path, tokens_per_round=500)
    assert client.ask("fedavg.train", client.model).error is None
    errors = [client.ask("evaluate.report_metrics", client.evaluation()).error or "" for _ in range(50)]
    assert errors[0] == ""
    assert "round … needs" in errors[-1]
    assert client.ask("fedavg.train", client.model, round=1).error is None
    context = client.setup.runtime.make_context("north", 0, "", lambda *_: pytest.fail(), lambda _: None)
    for readout in (GeneratedCompletions(10**9), GeneratedTokens(num_beams=1, max_new_tokens=10**9)):
        job = Infer(context.model, client.model, context.participant.split("test"), readout)
        assert count_tokens(job) > 10**9  # also what may be generated


def test_a_server_cannot_fill_the_disk_with_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client once wrote what the server sent as a name, at full length, and ended at half a character."""
    client = join(tmp_path, make_acceptance(tmp_path / "server", secure="secagg"), policy=UNVERIFIED)
    client.ask("x" * 1_000_000)
    client.ask("secure.advertise", "y" * 1_000_000)
    client.ask("secure.confirm", ("a", "b"))
    client.ask("secure.\ud800")
    log = (tmp_path / "state" / "audit.jsonl").read_text()
    assert len(log) < 30_000
    assert '"secure.?"' in log
    monkeypatch.setattr("motet.experiment.deploy.request_guard.MAX_REQUESTS", -990)
    with pytest.raises(PrivacyError, match="this client leaves the run"):
        for _ in range(20):
            client.ask("x")


def test_a_client_counts_epsilon_over_all_runs_and_restarts(tmp_path: Path) -> None:
    """A server that restarts, or begins another run, cannot make a client forget what it has spent."""
    noise = {"type": "local", "clip": 1.0, "noise": 8.0, "delta": 0.5}  # the server's δ would make ε look small
    client = join_plain(tmp_path, sections={"privacy": noise, "rounds": 50}, max_epsilon=4.0)

    def train(client: JoinedClient, round: int) -> str:
        return client.ask("private.clipped", ClipRequest("fedavg.train", client.model), round).error or ""

    rounds = next(round for round in range(50) if "ε" in train(client, round))
    assert rounds > 1
    client.builder.close()
    again = join(tmp_path, make_acceptance(tmp_path / "other", privacy=noise), policy=client.builder.options.policy)
    assert "limit over all runs is 4" in train(again, 0)


def test_a_crafted_model_does_not_show_through_the_noise_which_words_a_client_has(tmp_path: Path) -> None:
    """Training failed if a text had a word with huge embeddings, and the error said so, whatever the masks and the noise."""
    client = join_plain(tmp_path, sections={"privacy": LOCAL_NOISE})
    context = client.setup.runtime.make_context("north", 0, "", lambda *_: pytest.fail(), lambda _: None)
    own_words = context.participant.split("train").unique_token_ids()
    for round, word in enumerate((int(own_words[-1]), int(own_words[-1]) + 1)):
        model = Params(client.model.layout, client.model.flat.clone())
        next(tensor for name, tensor in model.tensors().items() if "word_embeddings" in name)[word] = 3e38
        reply = client.ask("private.clipped", ClipRequest("fedavg.train", model), round)
        assert reply.error is None
        assert reply.value.value.is_finite()
    assert any("an unchanged model is sent" in line for line in client.log)


def test_the_agreement_is_shown_and_never_loosened(tmp_path: Path) -> None:
    acceptance = make_acceptance(tmp_path / "server", secure="secagg")
    client = join(tmp_path, acceptance, policy=UNVERIFIED)
    text = "\n".join(client.log)
    assert "secagg over at least 3 clients" in text
    assert text.index("agreed with the server") < text.index("offered to the server")
    client.builder.close()
    weaker = make_acceptance(tmp_path / "server", secure="none")
    assert weaker.run == acceptance.run
    with pytest.raises(PrivacyError, match="the server changed the settings of the run"):
        join(tmp_path, weaker, policy=PLAIN)


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"secure": "none"}, "this client's policy refuses the run: secure.type is none"),
        ({"secure": "secagg", "solver": {"epochs": 10**9}}, "one training of this run needs"),
    ],
)
def test_a_refused_run_is_in_the_audit_log(tmp_path: Path, sections: dict[str, Any], reason: str) -> None:
    acceptance = make_acceptance(tmp_path / "server", **sections)
    with pytest.raises(PrivacyError):
        join(tmp_path, acceptance, policy=UNVERIFIED, server="fl.example.org:8443")
    last = read_audit_log(tmp_path / "state" / "audit.jsonl")[-1]
    assert (last["event"], last["run"], last["server"]) == ("refused", acceptance.run, "fl.example.org:8443")
    assert reason in last["reason"]


def test_the_agreement_is_checked_before_data_is_read(tmp_path: Path) -> None:
    acceptance = make_acceptance(tmp_path / "server", model={"name": "tiny", "max_tokens": 16, "config": SMALL})
    data = DataConfig(path=str(tmp_path / "missing.csv"))  # reading it would raise another error
    options = JoinOptions(names=("north",), data=data, config=None, state_folder=tmp_path, device="cpu")
    with pytest.raises(PrivacyError, match="refuses the run"):
        ClientBuilder(options)(acceptance)
    assert not (tmp_path / "audit.jsonl").exists() or json.loads((tmp_path / "audit.jsonl").read_text())
