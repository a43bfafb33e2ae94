"""A language model asked for weights: over real HTTP, and what comes of every kind of answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from motet.algorithms import llm_weighting
from motet.algorithms.distillation_weights import Account, Exponential, Own, shares
from motet.algorithms.llm_weighting import Chat, Oracle, by_rule, parsed, prompt
from motet.core.errors import ConfigError

ACCOUNTS = {"ann@example.org": Account(0.4, 100, 0.5, 0.8), "bob@example.org": Account(0.2, 50, 0.3, 0.9)}
KEY = "sk-very-secret"
Answer = Callable[[int, Any], tuple[int, bytes] | None]


def completion(text: str) -> bytes:
    usage = {"prompt_tokens": 120, "completion_tokens": 8}
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}).encode()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], list[Any]]]:
    """A chat endpoint that answers as it is told to; what it was asked is kept."""
    servers = []

    def serve(answer: Answer) -> list[Any]:
        asked: list[Any] = []

        class Endpoint(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append((self.path, dict(self.headers), body))
                found = answer(len(asked), body)
                if found is None:
                    self.close_connection = True
                    return
                status, said = found
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args: Any) -> None: ...

        class Door(ThreadingHTTPServer):
            def handle_error(self, *args: Any) -> None: ...  # whoever is asked for too long finds nobody there

        server = Door(("127.0.0.1", 0), Endpoint)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return asked

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def weighed(**options: Any) -> tuple[list[float], Any]:
    weights, remark = Oracle(Chat("some-model", pause=0.0, **options), Own(Exponential())).weights(ACCOUNTS)
    return shares(weights).tolist(), remark


def enwc() -> list[float]:
    return shares(Own(Exponential()).weights(ACCOUNTS)[0]).tolist()


def test_the_answer_becomes_weights_and_its_cost_is_shown(service: Any) -> None:
    asked = service(lambda n, body: (200, completion("0.25, 0.75")))
    weights, remark = weighed(price_in=30.0, price_out=60.0)
    assert weights == [0.25, 0.75]
    path, headers, body = asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body["model"] == "some-model"
    assert remark.values["llm_cost"] == pytest.approx((120 * 30 + 8 * 60) / 1e6)
    assert "120 tokens in, 8 out" in remark.text


def test_only_numbers_are_told_and_nobody_is_named(service: Any) -> None:
    asked = service(lambda n, body: (200, completion("1,1")))
    weighed()
    said = json.dumps(asked[0][2])
    assert (
        "client 1: training loss 0.4000, F1 0.8000, mean prediction entropy 0.5000 nats, training examples 100" in said
    )
    assert "example.org" not in said


@pytest.mark.parametrize(
    "text",
    [
        "0.5", "0.2, 0.3, 0.5", "-0.5, 1.5", "0, 0", "nan, 1", "inf, 1", "1e999, 1", "The weights are 0.5, 0.5", "0.5; 0.5",
        "", "0.5, 0.5.", "0.5 0.5", "50%, 50%", "[[0.5, 0.5]]", "0.5, ", '{"weights": [0.5, 0.5]}', "1e308, 1e308",
    ],
)  # fmt: skip
def test_anything_but_that_many_numbers_falls_back(service: Any, text: str) -> None:
    service(lambda n, body: (200, completion(text)))
    weights, remark = weighed()
    assert weights == enwc()
    assert "gave no weights" in remark.text
    assert "ENWC" in remark.text
    assert remark.values["llm_used"] == 0


@pytest.mark.parametrize("text", ["0.25,0.75", " [ 1 , 3 ] ", "1, 3\n", ".25, .75", "2.5e-1, 7.5E-1"])
def test_numbers_separated_by_commas_are_understood(text: str) -> None:
    assert shares(parsed(text, 2)).tolist() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"content": null}}]}', b"[1]"]
)
def test_an_answer_that_is_no_completion_falls_back(service: Any, body: bytes) -> None:
    service(lambda n, _: (200, body))
    assert weighed()[0] == enwc()


def test_failures_that_may_pass_are_tried_again(service: Any) -> None:
    asked = service(lambda n, body: (200, completion("1,3")) if n == 3 else (503, b"") if n == 1 else None)
    weights, _ = weighed(retries=2)
    assert weights == [0.25, 0.75]
    assert len(asked) == 3


def test_a_refusal_is_not_tried_again_and_shows_no_key(service: Any) -> None:
    asked = service(lambda n, body: (401, f"wrong key {KEY}".encode()))
    weights, remark = weighed(retries=5)
    assert weights == enwc()
    assert len(asked) == 1
    assert "status 401" in remark.text
    assert KEY not in remark.text


def test_a_redirection_is_not_followed(service: Any) -> None:
    asked = service(lambda n, body: (302, b""))
    assert "status 302" in weighed()[1].text
    assert len(asked) == 1


def test_a_slow_answer_is_not_waited_for(service: Any) -> None:
    release = threading.Event()
    service(lambda n, body: (release.wait(20), (200, completion("1,3")))[1])
    weights, remark = weighed(timeout=0.3, retries=0)
    assert not release.is_set()  # it has not answered yet
    release.set()
    assert weights == enwc()
    assert "no answer within 0.3 s" in remark.text


def test_an_endless_answer_is_cut_off(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm_weighting, "LONGEST", 1000)
    service(lambda n, body: (200, completion("1" * 5000)))
    assert "longer than 1000 bytes" in weighed()[1].text


def test_nobody_there_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    weights, remark = weighed(retries=1)
    assert weights == enwc()
    assert "2 attempts" in remark.text


def test_no_key_and_no_address_is_a_mistake_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=r"llm\.model is some-model, but neither OPENAI_API_KEY"):
        weighed()
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost")
    with pytest.raises(ConfigError, match="no address"):
        weighed()


def test_a_key_is_used_without_its_line_end_and_never_shown(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = service(lambda n, body: (200, completion(f"Your key is Bearer {KEY}, thank you")))
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    weights, remark = weighed(price_in=30.0)
    assert asked[0][1]["Authorization"] == f"Bearer {KEY}"
    assert weights == enwc()
    assert KEY not in remark.text
    assert "120 tokens in" in remark.text, "what could not be used is paid for all the same"
    assert remark.values["llm_cost"] > 0


@pytest.mark.parametrize("key", ["sk very-secret", "sk-very-secr\u00e9t", "sk-very-\nsecret"])
def test_a_key_that_is_none_is_said_before_anybody_trains_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY has characters") as said:
        Oracle(Chat("some-model"), Own(Exponential())).ready()
    assert "secr" not in str(said.value)
    Oracle(Chat(), Own(Exponential())).ready()  # which asks nobody


@pytest.mark.parametrize("base", ["http://localhost:99999/v1", "http://local host/v1", "ftp://x/v1", "http:///v1"])
def test_an_address_that_is_none_is_said_before_anybody_trains(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", base)
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is no address"):
        Oracle(Chat("some-model"), Own(Exponential())).ready()


@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"choices": [{"message": {"content": "1,3"}}], "usage": {"prompt_tokens": true}}']
)
def test_an_answer_that_would_break_its_reader_does_not(service: Any, body: bytes) -> None:
    service(lambda n, _: (200, body))
    weights, remark = weighed()
    assert weights == (enwc() if body.startswith(b"[") else [0.25, 0.75])
    assert "0 tokens in" in remark.text


def test_tokens_beyond_counting_are_not_counted(service: Any) -> None:
    usage = {"prompt_tokens": int("9" * 400), "completion_tokens": -3}
    text = json.dumps({"choices": [{"message": {"content": "1,3"}}], "usage": usage})
    service(lambda n, _: (200, text.encode()))
    assert "0 tokens in, 0 out" in weighed()[1].text


def test_an_answer_that_comes_in_drops_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte in time, the whole of it not."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        stop = threading.Event()

        def drip() -> None:
            with door.accept()[0] as line:
                line.sendall(b"HTTP/1.1 200 OK\r\n")
                with suppress(OSError):
                    while not stop.wait(0.05):
                        line.sendall(b"x: y\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{door.getsockname()[1]}/v1")
        _, remark = weighed(timeout=0.5, retries=0)
        stop.set()
        thread.join()
    assert "no answer within 0.5 s" in remark.text


def test_offline_a_rule_stands_in() -> None:
    weights, remark = Oracle(Chat(), Own(Exponential())).weights(ACCOUNTS)
    assert shares(weights).tolist() == shares(by_rule(list(ACCOUNTS.values()))).tolist()
    assert weights[1] > weights[0] > 0  # the smaller loss and the better F1
    assert "weights by rule" in remark.text
    assert "F1 unknown" in prompt([Account(0.1, 5)])
