"""A small message cannot cost the receiver much memory or time. The attacks are those of an admitted client."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
import torch
from tests.networks import MemoryLink, make_admission, make_join_request

from motet.codecs.chain import EncodedParams
from motet.core.errors import ConfigError, WireError
from motet.core.params import Layout, Params
from motet.core.weighted import Weighted
from motet.models.model_config import ModelConfig
from motet.models.model_size import check_memory
from motet.models.word_vocabulary import build_word_tokenizer
from motet.transport.admission import ClientReady, Rejection, RunFinished
from motet.transport.client_connection import ClientConnection, ClientSetup
from motet.transport.connections import Connections
from motet.transport.framing import OutgoingMessage
from motet.transport.message_limits import JOIN_REQUEST, MIN_EXPANDED_NUMBERS, reply_limits, request_limits
from motet.transport.requests import Reply, Request
from motet.wire import deserialize, serialize
from motet.wire.format import FLAG_COMPRESSED, MAGIC, WIRE_VERSION

MODEL_NUMBERS = 20_000_000


def make_message(header: bytes, body: bytes = b"") -> bytes:
    compressed = zlib.compress(header, 9)
    return struct.pack("<4sHHI", MAGIC, WIRE_VERSION, FLAG_COMPRESSED, len(compressed)) + compressed + body


def connect_client() -> tuple[Connections, MemoryLink]:
    connections = Connections(make_admission("a"), reply_limits=reply_limits(MODEL_NUMBERS))
    link = MemoryLink(connections)
    link.send(OutgoingMessage.from_value(make_join_request("a")))
    link.send(OutgoingMessage.from_value(ClientReady("fingerprint")))
    connections.send(Request(1, "a", 0, "p.m", None))
    return connections, link


def assert_rejected(message: bytes) -> None:
    connections, link = connect_client()
    connections.on_message(link.server_end, message)
    assert not connections.inbox
    assert connections.rejected["a"] == 1


def in_reply(value: bytes) -> bytes:
    return b'{"!":"Reply","fields":[1,"a",%s,null]}' % value


def test_a_header_of_millions_of_lists_is_not_parsed() -> None:
    bomb = make_message(in_reply(b"[" + b"[]," * 5_000_000 + b"0]"))
    assert len(bomb) < 20_000
    assert_rejected(bomb)


def test_a_header_with_too_many_items_is_not_parsed_even_if_it_is_short() -> None:
    assert_rejected(make_message(in_reply(b"[" + b"0," * 600_000 + b"0]")))


def test_brackets_inside_of_strings_are_not_items() -> None:
    """A vocabulary is one string with many brackets, escaped quotes and backslashes."""
    text = '{"[\\"]' * 100_000
    connections, link = connect_client()
    connections.on_message(link.server_end, serialize(Reply(1, "a", text)))
    assert connections.inbox[0].value == text


def test_a_string_without_an_end_is_searched_only_once() -> None:
    """Whoever searches for its end at each escaped quote counts the commas between them, and takes minutes."""
    header = b'"' + b'\\",' * (JOIN_REQUEST.contents.nodes + 1)
    with pytest.raises(WireError, match="JSONDecodeError: Unterminated string"):
        deserialize(make_message(header), JOIN_REQUEST.contents)


def make_top_k(numbers: int) -> EncodedParams:
    layout = Layout(names=("w",), shapes=((numbers,),), roles=("head",))
    return EncodedParams(layout, torch.zeros(4), (torch.zeros(4, dtype=torch.int32),))


def test_few_numbers_cannot_stand_for_a_vector_that_is_larger_than_the_model() -> None:
    assert_rejected(serialize(Reply(1, "a", Weighted(make_top_k(MODEL_NUMBERS + 1), 1.0))))  # type: ignore[arg-type]
    connections, link = connect_client()
    valid = Weighted(make_top_k(MODEL_NUMBERS), 1.0)  # type: ignore[arg-type]
    connections.on_message(link.server_end, serialize(Reply(1, "a", valid)))
    assert len(connections.inbox) == 1


def test_a_message_cannot_repeat_a_compressed_model_many_times() -> None:
    copies = [make_top_k(MODEL_NUMBERS) for _ in range(9)]
    assert_rejected(serialize(Reply(1, "a", copies)))
    connections, link = connect_client()
    connections.on_message(link.server_end, serialize(Reply(1, "a", copies[:8])))
    assert len(connections.inbox) == 1


def test_numbers_that_are_really_sent_may_be_more_than_the_model_has() -> None:
    data = serialize(make_top_k(MIN_EXPANDED_NUMBERS + 1))
    with pytest.raises(WireError, match="at most 16777216 are expected"):
        deserialize(data, reply_limits(0).contents)
    assert isinstance(deserialize(data), EncodedParams)


@pytest.mark.parametrize(
    "shapes",
    [
        b'{"!":"tuple","items":[%s]}' % b",".join([b"9" * 4000] * 2000),  # their product would take hours
        b'{"!":"tuple","items":[0,%d,%d]}' % (2**47, 2**47),
        b'{"!":"tuple","items":[-1]}',
        b'{"!":"tuple","items":[%d]}' % 2**70,
        b'{"!":"tuple","items":[1]},{"!":"tuple","items":[1]}',
    ],
    ids=["many huge numbers", "an overflow next to zero", "negative", "2**70", "more shapes than names"],
)
def test_an_impossible_layout_is_rejected(shapes: bytes) -> None:
    names, roles = b'{"!":"tuple","items":["w"]}', b'{"!":"tuple","items":["head"]}'
    layout = b'{"!":"Layout","fields":[%s,{"!":"tuple","items":[%s]},%s]}' % (names, shapes, roles)
    tensor = b'{"!":"tensor","dtype":"float32","shape":[1]}'
    assert_rejected(make_message(in_reply(b'{"!":"Params","fields":[%s,%s]}' % (layout, tensor)), bytes(4)))


@pytest.mark.parametrize("shape", [f"0,{2**47},{2**47}", f"{2**49}", "0" + f",{2**48}" * 63])
@pytest.mark.parametrize("kind", ["tensor", "array", "bytes"])
def test_a_shape_that_overflows_is_rejected(shape: str, kind: str) -> None:
    """PyTorch multiplies the dimensions, also those next to a zero."""
    header = f'{{"!":"{kind}","dtype":"uint8","shape":[{shape}]}}'
    with pytest.raises(WireError, match=r"a tensor of shape \["):
        deserialize(make_message(header.encode()))
    assert_rejected(make_message(in_reply(header.encode())))


def test_a_tensor_of_booleans_has_only_two_values() -> None:
    with pytest.raises(WireError, match="booleans"):
        deserialize(make_message(b'{"!":"tensor","dtype":"bool","shape":[2]}', b"\1\2"))


def collide_tuples(count: int) -> list[tuple[int, int]]:
    """Return tuples of two numbers that all have the same hash in every CPython."""
    modulus, prime_1, prime_2, prime_5 = 2**64, 11400714785074694791, 14029467366897019727, 2870177450012600261
    inverse, tuples, first = pow(prime_2, -1, modulus), list[tuple[int, int]](), 0
    while len(tuples) < count:
        first += 1
        mixed = (prime_5 + first * prime_2) % modulus
        rotated = ((mixed << 31) | (mixed >> 33)) % modulus
        second = -rotated * prime_1 * inverse % modulus
        if second < 2**61 - 1:  # numbers up to here are their own hashes
            tuples.append((first, second))
    assert len({hash(pair) for pair in tuples}) == 1
    return tuples


COLLIDING_KEYS: dict[str, list[Any]] = {
    "integers": [b"%d" % (k * (2**61 - 1)) for k in range(1, 2000)],
    "tuples": [b'{"!":"tuple","items":[%d,%d]}' % pair for pair in collide_tuples(2000)],
    "floats": [b"%d.0" % (2 ** (61 * k)) for k in range(16)],
}


@pytest.mark.parametrize("kind", COLLIDING_KEYS)
def test_keys_with_the_same_hash_are_rejected(kind: str) -> None:
    pairs = b",".join(b"[%s,0]" % key for key in COLLIDING_KEYS[kind])
    header = b'{"!":"map","items":[%s]}' % pairs
    with pytest.raises(WireError, match="a map has the key"):
        deserialize(make_message(header))


def test_keys_that_motet_uses_are_accepted() -> None:
    value = {"name": 1, -7: 2, ("fedavg", "client-0"): 3, None: 4, b"raw": 5}
    assert deserialize(serialize(value)) == value


@pytest.mark.parametrize("value", [ClientReady("x"), Reply(1, "a"), {"x": [1]}, make_top_k(4)])
def test_a_stranger_may_send_nothing_but_a_join_request(value: Any) -> None:
    assert deserialize(serialize(make_join_request("a")), JOIN_REQUEST.contents).clients == ("a",)
    connections = Connections(make_admission("a"))
    stranger = MemoryLink(connections, "stranger")
    connections.on_message(stranger.server_end, serialize(value))
    assert stranger.is_cut
    assert "is not expected here" in deserialize(stranger.receive(5) or b"").reason


def test_a_client_that_is_not_ready_may_send_no_large_message() -> None:
    connections = Connections(make_admission("a"))
    link = MemoryLink(connections)
    link.send(OutgoingMessage.from_value(make_join_request("a")))
    with pytest.raises(WireError, match="at most 4096 are accepted"):
        link.send(OutgoingMessage.from_value(Reply(1, "a", torch.zeros(10_000))))


def test_an_unexpected_error_closes_the_link_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    connections, link = connect_client()

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug with a private detail")

    monkeypatch.setattr(connections, "_handle_reply", fail)
    connections.on_message(link.server_end, serialize(Reply(1, "a")))
    assert link.is_cut
    messages = []
    while not isinstance(message := deserialize(link.receive(5) or b""), Request):
        messages.append(message)
    rejection = deserialize(link.receive(5) or b"")
    assert rejection.reason == "the server could not process your message (RuntimeError); see its log."


def test_control_characters_in_the_error_of_a_client_are_not_printed() -> None:
    connections, link = connect_client()
    connections.on_message(link.server_end, serialize(Reply(1, "a", error="\x1b[2Jgone\r\nline" + "x" * 5000)))
    error = connections.inbox[0].error or ""
    assert error.startswith("?[2Jgone?\nline")
    assert len(error) == 2001


# ---- A malicious server ---------------------------------------------------------------------------------------------


class ScriptedLink:
    """A link on which a server sends these messages, and then breaks."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = [*messages]

    def send(self, message: OutgoingMessage) -> None: ...
    def close(self) -> None: ...
    def limit_messages(self, message_bytes: int) -> None: ...

    def receive(self, timeout: float | None) -> memoryview | None:
        if not self.messages:
            raise ConnectionError("over")
        return memoryview(self.messages.pop(0))


def run_client(*messages: bytes, give_up_after: float = 0.0) -> tuple[str, list[str]]:
    """Return how the client ends, and what it logs."""
    setup = ClientSetup(Any, Any, "fingerprint", request_limits(MODEL_NUMBERS))  # type: ignore[arg-type]
    log: list[str] = []
    connect = ScriptedLink(*messages)
    connection = ClientConnection(lambda: connect, make_join_request("a"), lambda _: setup, give_up_after, log.append)
    try:
        return connection.run(), log
    except Exception as error:
        return str(error), log


ACCEPTANCE = serialize(make_admission("a").acceptance)


def test_a_server_cannot_fill_the_memory_of_a_client_that_joins() -> None:
    lists = b"[" + b"[]," * 5_000_000 + b"0]"
    bomb = make_message(b'{"!":"JoinAccepted","fields":["0123abcd","s","d",{"!":"map","items":[["x",%s]]}]}' % lists)
    assert "the header has 10000013 items; at most 65536 are accepted" in run_client(bomb)[0]
    assert "the server answered with a Params" in run_client(serialize(Params.from_tensors({"w": torch.ones(4)})))[0]


def test_a_client_that_cannot_read_the_first_answer_ends_at_once() -> None:
    """It would not read a repeated answer either. Later it tries again, because the server may be under repair."""
    unknown = make_message(b'{"!":"AnswerOfAPlugin","fields":[]}')
    ending, log = run_client(unknown, give_up_after=600.0)
    assert "AnswerOfAPlugin" in ending
    assert "the same version of Motet, and the same packages with components" in ending
    assert not log
    assert run_client(ACCEPTANCE, give_up_after=0.0)[0].startswith("the server cannot be reached")


def test_a_server_cannot_fill_the_memory_of_a_client_with_a_request() -> None:
    layout = make_top_k(MODEL_NUMBERS + 1)
    ending, log = run_client(ACCEPTANCE, serialize(Request(1, "a", 0, "p.m", layout)), serialize(RunFinished("over")))
    assert "parameters with 20000001 numbers were announced; at most 20000000 are expected in this run" in log[0]
    assert ending == "over"


def test_requests_that_a_client_has_not_begun_replace_each_other() -> None:
    """While a client trains, a server could send it many large requests."""
    connection = ClientConnection(lambda: pytest.fail("connected"), make_join_request("a", "b"), lambda _: Any)
    for number in range(1, 100):
        for client in ("a", "b", "other"):
            connection._accept_request(Request(number, client, 0, "p.m", None))
    batch = connection._next_requests()
    assert {client: request.id for client, (_, request) in batch.items()} == {"a": 99, "b": 99}  # type: ignore[union-attr]
    assert not connection.waiting


def hostile_words(change: dict[str, Any]) -> str:
    """Return the tokenizer of a small vocabulary, with something of the server's choice."""
    tokenizer = json.loads(build_word_tokenizer(["a good film"]).backend_tokenizer.to_str())
    return json.dumps({**tokenizer, **change})


def test_a_vocabulary_brings_no_rules_of_the_server() -> None:
    """A rule can replace each character by megabytes, or match for hours."""
    bomb = {"type": "Replace", "pattern": {"Regex": "."}, "content": "film " * 100_000}
    endless = {"type": "Split", "pattern": {"Regex": "(\\\\w+\\\\s?)+$!"}, "behavior": "Isolated", "invert": False}
    honest = build_word_tokenizer(hostile_words({}))
    for change in ({"normalizer": bomb}, {"pre_tokenizer": endless}):
        tokenizer = build_word_tokenizer(hostile_words(change))
        assert tokenizer("a good film " * 10) == honest("a good film " * 10)
    assert honest.backend_tokenizer.to_str() == build_word_tokenizer(["a good film"]).backend_tokenizer.to_str()


@pytest.mark.parametrize("vocabulary", [None, {"[PAD]": 0}, {str(i): i for i in range(20_001)}, {"a": "b"}, [1]])
def test_an_impossible_vocabulary_is_rejected(vocabulary: Any) -> None:
    with pytest.raises(ConfigError, match="the vocabulary of the run cannot be read"):
        build_word_tokenizer(hostile_words({"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}}))
    with pytest.raises(ConfigError, match="the vocabulary of the run cannot be read"):
        build_word_tokenizer("[" * 100_000)


@pytest.mark.parametrize("name", ["tiny", "bilstm", "mixed:tiny", "minilm", "bert2bert:minilm"])
def test_a_model_that_cannot_fit_into_the_memory_is_not_built(name: str) -> None:
    """Each setting is possible, and their product is not."""
    width = {"hidden_size": 2**18} if name == "bilstm" else {"hidden_size": 12_000, "num_hidden_layers": 200}
    task, words = "seq2seq" if name.startswith("bert2bert") else "classification", hostile_words({})
    with pytest.raises(ConfigError, match=r"model\.config asks for a model that needs \d+ GB"):
        check_memory(ModelConfig(name=name, config=width), task, ("no", "yes"), lambda: words)
    check_memory(ModelConfig(name=name, config={"hidden_size": 24}), task, ("no", "yes"), lambda: words)
    with pytest.raises(ConfigError, match=r"num_hidden_layers is 100000; expected a number up to 1,000"):
        ModelConfig(config={"num_hidden_layers": 100_000})


def test_a_server_cannot_send_control_characters_to_the_terminal() -> None:
    assert (
        run_client(serialize(Rejection("\x1b]0;title\x07 no")))[0] == "the server rejected this client: ?]0;title? no"
    )
    assert run_client(ACCEPTANCE, serialize(RunFinished("\x1b[2J")))[0] == "?[2J"
