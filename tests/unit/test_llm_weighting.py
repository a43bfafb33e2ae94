"""Weights from a language model, requested over real HTTP from a local server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
import torch
from benchmarks.chat_server import ChatModel, serve
from jinja2 import TemplateError

from motet.algorithms import llm_weighting
from motet.algorithms.distillation_weights import ExponentialWeights, LocalWeights, TrainingStats, normalize_weights
from motet.algorithms.llm_weighting import LLMConfig, LLMWeights, build_prompt, offline_weights, parse_weights
from motet.core.errors import ConfigError
from motet.core.script import Note

STATS = {
    "ann@example.org": TrainingStats(loss=0.4, num_examples=100, entropy=0.5, f1=0.8),
    "bob@example.org": TrainingStats(loss=0.2, num_examples=50, entropy=0.3, f1=0.9),
}
ENWC = LocalWeights(ExponentialWeights())
KEY = "sk-very-secret"
USAGE = {"prompt_tokens": 120, "completion_tokens": 8}


class ChatRequest(NamedTuple):
    path: str
    headers: dict[str, str]
    body: Any


# Takes the number of the request, counted from 1. Returns a status and a body, or None to close the connection.
Respond = Callable[[int], tuple[int, bytes] | None]
StartServer = Callable[[Respond], list[ChatRequest]]


def completion(text: str, usage: Any = USAGE) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}).encode()


@pytest.fixture
def start_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartServer]:
    """Start a chat endpoint, and return the list of the requests that it receives."""
    servers: list[ThreadingHTTPServer] = []

    def start(respond: Respond) -> list[ChatRequest]:
        requests: list[ChatRequest] = []

        class Endpoint(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                requests.append(ChatRequest(self.path, dict(self.headers), body))
                response = respond(len(requests))
                if response is None:
                    self.close_connection = True
                    return
                status, content = response
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, *args: Any) -> None: ...  # clients that give up close the connection

        server = Server(("127.0.0.1", 0), Endpoint)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return requests

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def request_weights(**options: Any) -> tuple[list[float], Note]:
    weights, note = LLMWeights(LLMConfig("some-model", pause=0.0, **options), ENWC).weights(STATS)
    return normalize_weights(weights).tolist(), note


def fallback_weights() -> list[float]:
    return normalize_weights(ENWC.weights(STATS)[0]).tolist()


# ---- requests and replies -------------------------------------------------------------------------------------------


def test_the_reply_becomes_weights_and_the_cost_is_reported(start_server: StartServer) -> None:
    requests = start_server(lambda _: (200, completion("0.25, 0.75")))
    weights, note = request_weights(price_in=30.0, price_out=60.0)
    assert weights == [0.25, 0.75]
    assert requests[0].path == "/v1/chat/completions"
    assert requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert requests[0].body["model"] == "some-model"
    assert note.values["llm_cost"] == pytest.approx((120 * 30 + 8 * 60) / 1e6)
    assert "120 tokens in, 8 out" in note.text


def test_the_prompt_has_statistics_and_no_names(start_server: StartServer) -> None:
    requests = start_server(lambda _: (200, completion("1,1")))
    request_weights()
    prompt = requests[0].body["messages"][1]["content"]
    line = "client 1: training loss 0.4000, F1 0.8000, mean prediction entropy 0.5000 nats, training examples 100"
    assert line in prompt
    assert "example.org" not in json.dumps(requests[0].body)
    assert "F1 unknown" in build_prompt([TrainingStats(loss=0.1, num_examples=5)])


@pytest.mark.parametrize("text", ["0.25,0.75", " [ 1 , 3 ] ", "1, 3\n", ".25, .75", "2.5e-1, 7.5E-1"])
def test_comma_separated_numbers_are_parsed(text: str) -> None:
    assert normalize_weights(parse_weights(text, 2)).tolist() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    "text",
    [
        "0.5", "0.2, 0.3, 0.5", "-0.5, 1.5", "0, 0", "nan, 1", "inf, 1", "1e999, 1", "The weights are 0.5, 0.5",
        "0.5; 0.5", "", "0.5, 0.5.", "0.5 0.5", "50%, 50%", "[[0.5, 0.5]]", "0.5, ", '{"weights": [0.5, 0.5]}', "1e308, 1e308",
    ],
)  # fmt: skip
def test_any_other_text_falls_back_to_enwc(start_server: StartServer, text: str) -> None:
    start_server(lambda _: (200, completion(text)))
    weights, note = request_weights()
    assert weights == fallback_weights()
    assert "returned no usable weights" in note.text
    assert "ENWC is used" in note.text
    assert note.values["llm_used"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no json", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"content": null}}]}', b"[1]",
        b"[" * 200_000,
    ],
)  # fmt: skip
def test_a_reply_that_is_not_a_completion_falls_back_to_enwc(start_server: StartServer, body: bytes) -> None:
    start_server(lambda _: (200, body))
    weights, note = request_weights()
    assert weights == fallback_weights()
    assert "0 tokens in" in note.text


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": True}, {"prompt_tokens": int("9" * 400), "completion_tokens": -3}, [1], None]
)
def test_invalid_token_counts_are_ignored(start_server: StartServer, usage: Any) -> None:
    start_server(lambda _: (200, completion("1,3", usage)))
    weights, note = request_weights()
    assert weights == [0.25, 0.75]
    assert "0 tokens in, 0 out" in note.text


def test_requests_can_be_sent_while_an_event_loop_is_running(start_server: StartServer) -> None:
    """As in a notebook."""
    start_server(lambda _: (200, completion("1,3")))

    async def main() -> list[float]:
        return request_weights()[0]

    assert asyncio.run(main()) == [0.25, 0.75]


# ---- failures -------------------------------------------------------------------------------------------------------


def test_temporary_failures_are_retried(start_server: StartServer) -> None:
    responses = {1: (503, b""), 2: None, 3: (200, completion("1,3"))}
    requests = start_server(lambda number: responses[number])
    weights, _ = request_weights(retries=2)
    assert weights == [0.25, 0.75]
    assert len(requests) == 3


def test_a_rejected_request_is_not_retried_and_the_key_is_not_shown(start_server: StartServer) -> None:
    requests = start_server(lambda _: (401, f"wrong key {KEY}".encode()))
    weights, note = request_weights(retries=5)
    assert weights == fallback_weights()
    assert len(requests) == 1
    assert "status 401" in note.text
    assert KEY not in note.text


def test_redirects_are_not_followed(start_server: StartServer) -> None:
    requests = start_server(lambda _: (302, b""))
    assert "status 302" in request_weights()[1].text
    assert len(requests) == 1


def test_a_reply_that_does_not_start_in_time_is_given_up(start_server: StartServer) -> None:
    release = threading.Event()

    def respond(_: int) -> None:
        release.wait(60)

    start_server(respond)
    weights, note = request_weights(timeout=0.3, retries=0)
    assert not release.is_set()
    release.set()
    assert weights == fallback_weights()
    assert "no reply within 0.3 s" in note.text


@pytest.mark.parametrize("drip", [b"x: y\r\n", b"\r\n1\r\nx"], ids=["header", "body"])
def test_a_reply_that_never_ends_is_given_up(drip: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server keeps sending, so that no single read exceeds the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")

        def serve() -> None:
            with listener.accept()[0] as connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n")
                while True:  # until the client closes the connection
                    connection.sendall(drip)
                    connection.settimeout(0.01)
                    with suppress(TimeoutError):
                        if connection.recv(2**16) == b"":
                            return

        server = threading.Thread(target=serve)
        server.start()
        weights, note = request_weights(timeout=0.5, retries=0)
        socket.create_connection(("127.0.0.1", port)).close()  # ends `accept` if the request never got that far
        server.join()
    assert weights == fallback_weights()
    assert "no reply within 0.5 s" in note.text


def test_an_oversized_reply_is_cut_off(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_weighting, "MAX_REPLY_BYTES", 1000)
    start_server(lambda _: (200, completion("1" * 5000)))
    assert "longer than 1000 bytes" in request_weights()[1].text


def test_without_a_server_the_weights_fall_back_to_enwc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    weights, note = request_weights(retries=1)
    assert weights == fallback_weights()
    assert "no connection" in note.text
    assert "2 attempts" in note.text


# ---- configuration --------------------------------------------------------------------------------------------------


def check_config() -> None:
    LLMWeights(LLMConfig("some-model"), ENWC).check()


def test_a_missing_key_and_url_are_reported_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=r"llm\.model is some-model, but neither OPENAI_API_KEY"):
        check_config()


@pytest.mark.parametrize("key", ["sk very-secret", "sk-very-secr\u00e9t", "sk-very-\nsecret"])
def test_an_invalid_key_is_reported_before_training_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY has characters") as error:
        check_config()
    assert "secr" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["localhost", "http://localhost:99999/v1", "http://local host/v1", "ftp://x/v1", "http:///v1"]
)
def test_an_invalid_url_is_reported_before_training(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not a URL"):
        check_config()


def test_the_key_is_stripped_and_hidden_in_replies(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = start_server(lambda _: (200, completion(f"Your key is Bearer {KEY}, thank you")))
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    weights, note = request_weights(price_in=30.0)
    assert requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert weights == fallback_weights()
    assert KEY not in note.text
    assert "120 tokens in" in note.text
    assert note.values["llm_cost"] > 0, "an unusable reply costs as much as a usable one"


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"retries": -1}, {"pause": -0.5}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected timeout > 0, retries >= 0 and pause >= 0"):
        LLMConfig(**options)


def test_the_offline_model_sends_no_request_and_prefers_small_losses_and_high_f1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    rule = LLMWeights(LLMConfig(), ENWC)
    rule.check()
    weights, note = rule.weights(STATS)
    assert weights.tolist() == offline_weights(list(STATS.values())).tolist()
    assert weights[1] > weights[0] > 0
    assert "weights from a fixed rule" in note.text


def test_the_chat_server_of_the_benchmarks_speaks_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer and a model that repeat the number of clients stand for a language model."""

    class Words:
        def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> dict[str, torch.Tensor]:
            return {"input_ids": torch.tensor([[len(STATS)] * len(messages)])}

        def decode(self, tokens: torch.Tensor, **_: object) -> str:
            return ", ".join(map(str, tokens.tolist()))

        def generate(self, input_ids: torch.Tensor, max_new_tokens: int, **_: object) -> torch.Tensor:
            return torch.cat([input_ids, input_ids[:, :max_new_tokens]], 1)

    with serve(ChatModel(Words(), Words(), max_reply_tokens=8)) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        weights, note = LLMWeights(LLMConfig("words"), ENWC).weights(STATS)
    assert weights.tolist() == [2, 2]
    assert (note.values["llm_tokens_in"], note.values["llm_tokens_out"]) == (2, 2)


@pytest.mark.parametrize(
    ("path", "length", "content", "status"),
    [
        ("/v1/chat/completions", "many", '{"messages": []}', 411),
        ("/v1/chat/completions", "-5", '{"messages": []}', 411),
        ("/v1/chat/completions", "9999999", "", 413),
        ("/v1/chat/completions", None, '{"messages": [{"role": "tool"}]}', 400),
        ("/v1/chat/completions", None, "[]", 400),
        ("/v1/models", None, "{}", 404),
    ],
)
def test_the_chat_server_answers_bad_requests_with_a_status(
    path: str, length: str | None, content: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    class StrictTemplate:
        def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> dict[str, torch.Tensor]:
            raise TemplateError("roles must alternate")

    with serve(ChatModel(None, StrictTemplate(), max_reply_tokens=8)) as url:
        connection = HTTPConnection(url.split("/")[2])
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(len(content)) if length is None else length)
        connection.endheaders(content.encode())
        assert connection.getresponse().status == status
        connection.close()
    assert "Traceback" not in capfd.readouterr().err
