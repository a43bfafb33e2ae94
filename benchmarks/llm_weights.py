"""LLMWC with a real language model: are its replies usable, and do better clients get larger weights?

    python -m benchmarks.llm_weights --model models/SmolLM2-135M-Instruct [--prompts 40] [--json FILE]

The statistics of four clients are drawn at random; a client with a lower loss has a higher F1. They are sent with the
prompt, the request and the parser of a run (`algorithms/llm_weighting.py`) to a server on this machine. A run uses a
reply only if it is a list of four numbers. To see what the model knows, this benchmark also reads four numbers in a
sentence. They are judged by the client with the lowest loss: without knowledge, it has the largest weight in a quarter
of the replies.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.chat_server import ChatModel, serve
from motet.algorithms.distillation_weights import TrainingStats
from motet.algorithms.llm_weighting import (
    NUMBER,
    LLMConfig,
    UnusableReplyError,
    build_prompt,
    parse_weights,
    send_prompt,
)

CLIENTS = 4


@dataclass(frozen=True)
class Answer:
    """A reply of the model to the statistics of clients with these losses. `problem` says why a run cannot use it."""

    losses: tuple[float, ...]
    reply: str
    problem: str

    @property
    def numbers(self) -> list[float]:
        """The numbers of the reply, also of a sentence."""
        return [float(number) for number in re.findall(NUMBER, self.reply)]

    @property
    def is_equal(self) -> bool:
        return len(set(self.numbers)) == 1

    @property
    def repeats_losses(self) -> int:
        """How many clients have their own loss as weight."""
        return sum(abs(n - loss) < 0.001 for n, loss in zip(self.numbers, self.losses, strict=True))

    @property
    def finds_best(self) -> float:
        """1 if the client with the lowest loss has the largest weight; a share of 1 if others have the same weight."""
        largest = max(self.numbers)
        return (self.numbers[int(np.argmin(self.losses))] == largest) / self.numbers.count(largest)

    @property
    def correlation(self) -> float:
        """Spearman's correlation of weight and loss; -1 is best."""
        from scipy.stats import spearmanr

        return float(spearmanr(self.numbers, self.losses).statistic)


def draw_stats(rng: np.random.Generator) -> list[TrainingStats]:
    losses = rng.uniform(0.1, 1.0, size=CLIENTS)
    return [
        TrainingStats(
            loss=float(loss),
            num_examples=int(rng.integers(500, 5000)),
            entropy=float(np.clip(loss + rng.normal(0, 0.05), 0.05, 1.09)),
            f1=float(np.clip(1 - 0.5 * loss + rng.normal(0, 0.02), 0, 1)),
        )
        for loss in losses
    ]


def ask(config: LLMConfig, stats: Sequence[TrainingStats]) -> Answer:
    text, problem = "", ""
    try:
        text = send_prompt(config, build_prompt(stats)).text
        parse_weights(text, len(stats))
    except UnusableReplyError as error:
        problem = _classify(str(error))
    return Answer(tuple(s.loss for s in stats), text, problem)


def _classify(problem: str) -> str:
    """Drop what differs between replies of the same kind."""
    return re.sub(r" \(.*\)", "", re.sub(r"\d+ numbers", "another number of numbers", problem))


def summarize(answers: Sequence[Answer]) -> str:
    lines = [f"A run can use {sum(not a.problem for a in answers)} of {len(answers)} replies."]
    lines += [f"- {count}: {problem}" for problem, count in Counter(a.problem for a in answers if a.problem).items()]
    complete = [answer for answer in answers if len(answer.numbers) == len(answer.losses)]
    different = [answer for answer in complete if not answer.is_equal]
    lines += [f"{len(complete)} have {CLIENTS} numbers, {len(different)} of them not all the same."]
    if different:
        best, correlation = fmean(a.finds_best for a in different), fmean(a.correlation for a in different)
        repeated = sum(a.repeats_losses for a in different)
        lines += [
            f"In these, the client with the lowest loss has the largest weight in {best:.0%} (chance: {1 / CLIENTS:.0%}).",
            f"Mean rank correlation of weight and loss: {correlation:.2f} (best: -1, chance: 0).",
            f"{repeated} of {CLIENTS * len(different)} weights are the client's loss.",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="directory of a causal model with a chat template")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write every reply to this file")
    arguments = parser.parse_args()
    rng, answers = np.random.default_rng(0), list[Answer]()
    with serve(ChatModel.load(arguments.model)) as url:
        os.environ["OPENAI_BASE_URL"] = url
        for i in range(arguments.prompts):
            answers.append(ask(LLMConfig(arguments.model.name, timeout=300, retries=0), draw_stats(rng)))
            answer = answers[-1]
            losses = ", ".join(f"{loss:.2f}" for loss in answer.losses)
            print(f"{i + 1}. losses {losses}: {answer.reply!r} {answer.problem}", flush=True)
    print(summarize(answers))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(answer) for answer in answers], indent=1), "utf-8")


if __name__ == "__main__":
    main()
