"""A chat server with the interface of OpenAI, for one model of transformers on this machine.

    python -m benchmarks.chat_server models/SmolLM2-135M-Instruct --port 8000
    OPENAI_BASE_URL=http://localhost:8000/v1 motet run toy-adafd algorithm.weighting=llmwc algorithm.llm.model=SmolLM2

It is for experiments: it answers one request at a time, with the most likely tokens, and only to this machine.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MAX_REQUEST_BYTES = 2**20


@dataclass(frozen=True)
class ChatModel:
    """A causal language model with a chat template."""

    model: Any
    tokenizer: Any
    max_reply_tokens: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def load(folder: Path, max_reply_tokens: int = 64) -> ChatModel:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        return ChatModel(model, AutoTokenizer.from_pretrained(folder), max_reply_tokens)

    def complete(self, messages: Sequence[dict[str, str]]) -> dict[str, Any]:
        """Return a chat completion in OpenAI's format."""
        inputs = self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        prompt_tokens = inputs["input_ids"].shape[1]
        with self.lock:
            tokens = self.model.generate(**inputs, max_new_tokens=self.max_reply_tokens, do_sample=False)[0]
        reply = self.tokenizer.decode(tokens[prompt_tokens:], skip_special_tokens=True)
        return {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": reply}}],
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": len(tokens) - prompt_tokens},
        }


def make_handler(model: ChatModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            header = self.headers.get("Content-Length", "")
            length = int(header) if header.isascii() and header.isdigit() else 0
            if not self.path.endswith("/chat/completions"):
                self.send_error(404)
                return
            if not 0 < length <= MAX_REQUEST_BYTES:
                self.send_error(413 if length else 411)
                return
            try:
                body = json.dumps(model.complete(json.loads(self.rfile.read(length))["messages"])).encode()
            except Exception as error:  # chat templates are programs of the model's authors and raise anything
                self.send_error(400, f"not a chat request: {type(error).__name__}")
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write no line for each request."""

    return Handler


@contextmanager
def serve(model: ChatModel, port: int = 0) -> Iterator[str]:
    """Serve on this machine until the block ends. Yield the base URL for clients."""
    with ThreadingHTTPServer(("127.0.0.1", port), make_handler(model)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path, help="directory of a causal model with a chat template")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    with serve(ChatModel.load(arguments.model), arguments.port) as url:
        print(f"OPENAI_BASE_URL={url}  (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
