"""Time whole rounds of adapter training on one frozen language model: Motet, a plain peft loop, and one large batch.

    python -m benchmarks.adapters                                  1.1 B parameters, 10 clients, on a GPU
    python -m benchmarks.adapters --size 7b --systems packed
    python -m benchmarks.adapters --size 135m --texts p3.npz --clients 9 --steps 10 --rows 8
    python -m benchmarks.adapters --size 135m --texts p3.npz --clients 9 --steps 10 --rows 8 --systems packed --profile
    python -m benchmarks.adapters --size 135m --texts p3.npz --device cpu --clients 4 --steps 2 --rows 4
    python -m benchmarks.adapters --size 135m --texts p3.npz --generate 988

All systems train LoRA on the same token ids with AdamW. `bare` trains one client after another with peft. `one batch` is not
federated: one adapter and one batch of all clients' rows, a lower bound for eager code. `packed` is Motet. `limit` is the
arithmetic of the frozen model alone, 4 * parameters * tokens at 790 TFLOP/s (an H200 in bfloat16). Times are seconds per
round. `--texts` is a file with the token ids of real prompts and completions (see `token_ids`); without it, every text has
`--tokens` tokens and the second half is the completion. With `--generate`, the time of greedy decoding is measured instead.

On a CPU, the systems take turns, round by round, and the median counts. Beside wall-clock time there is the processor time of
all processes, which other load on the machine changes less; `ratio` is that of Motet divided by that of `bare`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.kernel_profile import profile_round
from motet.algorithms import fedavg
from motet.core.rng import Seed, seeded_torch
from motet.datasets.corpus import Corpus
from motet.experiment.build.client_lists import ClientRange
from motet.experiment.build.federation import Federation
from motet.experiment.build.group_builder import build_group
from motet.experiment.build.run_components import RunComponents
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun
from motet.learning.data.features import IGNORE_INDEX, Examples, Features, Ragged
from motet.learning.executors.packed_executor import PackedExecutor
from motet.learning.executors.process_executor import ProcessExecutor, default_worker_count
from motet.learning.jobs import Infer
from motet.learning.modules.model import Model
from motet.learning.objectives.completion import CompletionCrossEntropy, CompletionLoss, GeneratedCompletions
from motet.learning.solver import Solver
from motet.learning.training.batch_order import bucket_batches
from motet.models.adapters import add_adapters
from motet.models.model_config import AdapterConfig
from motet.models.parameter_roles import infer_parameter_roles
from motet.partitions.partition import ClientRows, Partition

PEAK_FLOPS = 790e12
# hidden size, intermediate size, layers, attention heads, key-value heads, vocabulary
SIZES = {
    "tiny": (64, 128, 2, 4, 2, 1000),
    "135m": (576, 1536, 30, 9, 3, 49152),
    "1.1b": (2048, 5632, 22, 32, 4, 32000),
    "7b": (4096, 11008, 32, 32, 32, 32000),
}
PlayRound = Callable[[int], None]


@dataclass(frozen=True)
class CompletionTask:
    """As much of a task formulation as training needs."""

    name: str = "instruct"
    primary_metric: str = "loss"
    metric_names: tuple[str, ...] = ("loss",)
    labels: tuple[str, ...] = ()
    objective: CompletionCrossEntropy = CompletionCrossEntropy()
    readout: CompletionLoss = CompletionLoss()
    reference_readout: None = None
    partial_metrics: tuple[str, ...] = ()

    def compute_metrics(self, predictions: Any, examples: Examples) -> dict[str, float]:
        return {"loss": float(predictions["loss"].sum() / predictions["count"].sum())}

    def score_examples(self, predictions: Any, examples: Examples) -> np.ndarray:
        scores: np.ndarray = -predictions["loss"].numpy()
        return scores


@dataclass(frozen=True)
class AdapterWorkload:
    """Clients with prompts and completions, and a Llama with random weights (or the weights of a directory)."""

    size: str
    clients: int
    steps: int
    rows: int
    tokens: int
    rank: int
    texts: Path | None
    directory: Path | None
    dtype: torch.dtype

    @cached_property
    def token_ids(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return the prompts and the completions of all clients, one client after another."""
        count = self.clients * self.steps * self.rows
        if self.texts is None:
            rng, half = np.random.default_rng(0), self.tokens // 2
            ids = rng.integers(3, SIZES[self.size][-1], (count, self.tokens))
            return ids[:, :half].tolist(), ids[:, half:].tolist()
        with np.load(self.texts) as file:  # values and offsets of both ragged columns
            columns = []
            for name in ("prompt", "completion"):
                values, offsets = file[f"{name}_values"], file[f"{name}_offsets"]
                columns.append([values[a:b].tolist() for a, b in pairwise(offsets)])
        order = np.random.default_rng(0).permutation(len(columns[0]))[:count]
        return [columns[0][i] for i in order], [columns[1][i] for i in order]

    @property
    def solver(self) -> Solver:
        bucket = 0 if self.texts is None else self.steps  # batches of texts with similar length, for all systems
        return Solver(optimizer="adamw", lr=1e-4, batch=self.rows, epochs=1, schedule="constant", bucket=bucket)

    def module(self) -> Any:
        if self.directory is not None:
            return transformers.AutoModelForCausalLM.from_pretrained(self.directory, dtype=self.dtype)
        hidden, intermediate, layers, heads, kv_heads, vocabulary = SIZES[self.size]
        config = transformers.LlamaConfig(
            hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, vocab_size=vocabulary, max_position_embeddings=2048, pad_token_id=0,
            eos_token_id=2, tie_word_embeddings=self.size == "135m",
        )  # fmt: skip
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with seeded_torch(0, device), device:
            torch.set_default_dtype(self.dtype)
            try:
                return transformers.LlamaForCausalLM(config)
            finally:
                torch.set_default_dtype(torch.float32)

    def model(self) -> Model:
        module = self.module()
        roles = add_adapters(module, infer_parameter_roles(module), AdapterConfig(rank=self.rank), train_head=False)
        for parameter in module.parameters():
            parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else self.dtype)
        return Model(f"llama-{self.size}", module, roles.roles, None, roles.embeddings_path, roles.layers_path)

    @cached_property
    def features(self) -> Features:
        prompts, completions = self.token_ids
        columns = {
            "input_ids": Ragged.from_lists([p + c for p, c in zip(prompts, completions, strict=True)], 0),
            "labels": Ragged.from_lists(completions, IGNORE_INDEX),
            "completion_start": np.array([len(p) for p in prompts], np.int64),
        }
        return Features("texts", columns)

    def federation(self) -> Federation:
        features, per_client = self.features, self.steps * self.rows
        corpus = Corpus("texts", "lm", {"text": [""] * len(features)}, len(features))
        train = ClientRows.from_sizes(np.arange(len(features)), np.full(self.clients, per_client))
        test = ClientRows.from_sizes(np.zeros(0, np.int64), np.zeros(self.clients, np.int64))
        partition = Partition(train, test, {})
        group = build_group(
            name="texts",
            task=CompletionTask(),  # type: ignore[arg-type]
            model=self.model(),
            corpus=corpus,
            features=features,
            partition=partition,
            max_tokens=10**6,
            clients=ClientRange(partition.clients, 0, self.clients),
        )
        return Federation((group,), group, Seed(0))

    def batches(self, index: int, client: int) -> list[np.ndarray]:
        per_client = self.steps * self.rows
        rows = client * per_client + np.arange(per_client)
        rng = Seed(0).derive("client", f"client-{client}", index, "train", "fit").derive("order").numpy()
        if not self.solver.bucket:
            return [rows[indices] for indices in self.solver.draw_batches(per_client, rng)]
        lengths = self.features.lengths[rows]
        return [rows[indices] for indices in bucket_batches(self.solver, lengths, rng, Seed(index).numpy())]

    def count_tokens(self) -> int:
        prompts, completions = self.token_ids
        return sum(map(len, prompts)) + sum(map(len, completions))


class PackedRounds:
    """Rounds of Motet: packed clients on a GPU, one worker process per core on a CPU."""

    def __init__(self, workload: AdapterWorkload, device: torch.device) -> None:
        self.federation = workload.federation()
        model, features = self.federation.model, self.federation.features
        if device.type == "cuda":
            model.to_device(device)
            self.executor: Any = PackedExecutor(device)
        else:
            self.executor = ProcessExecutor(default_worker_count(), {model.key: model}, {features.key: features})
        algorithm = RunComponents(algorithm=fedavg(workload.solver))
        self.run = FederatedRun(RunPlan(federation=self.federation, components=algorithm, rounds=10**6), self.executor)

    def __call__(self, index: int) -> None:
        self.run.engine.run_round(list(self.federation.clients))

    def profile(self, index: int) -> str:
        """Run a round on a GPU under torch's profiler; return its kernels, and the shapes of steps so far."""
        graphs = self.executor.graphs
        lines = [
            profile_round(lambda: self(index)),
            f"{len(graphs.graphs)} captured steps; runs before a capture, by clients and shape:",
            *(f"  {count}  {key[-2]} {key[-1][1:3]}" for key, count in graphs.eager_runs.items()),
        ]
        return "\n".join(lines)


class PeftLoop:
    """Train LoRA with peft in plain PyTorch, on batches of rows."""

    def __init__(self, workload: AdapterWorkload, device: torch.device) -> None:
        self.workload, self.device = workload, device
        self.module = workload.model().module.to(device).train()
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        self.shared = [p.detach().clone() for p in self.trained]
        self.features = workload.features

    def train(self, batches: list[np.ndarray]) -> None:
        optimizer = torch.optim.AdamW(self.trained, lr=1e-4, weight_decay=0.0, fused=self.device.type == "cuda")
        for rows in batches:
            batch = {name: t.to(self.device) for name, t in self.features.batch(rows).items()}
            labels = torch.full_like(batch["input_ids"], IGNORE_INDEX)
            columns = batch["completion_start"].unsqueeze(1) + torch.arange(
                batch["labels"].shape[1], device=self.device
            )
            columns = columns.clamp(max=labels.shape[1] - 1)
            keep = batch["labels"] != IGNORE_INDEX
            labels[torch.nonzero(keep)[:, 0], columns[keep]] = batch["labels"][keep]
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                loss = self.module(
                    input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels, use_cache=False
                ).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.trained, self.workload.solver.clip)
            optimizer.step()


def bare(workload: AdapterWorkload, device: torch.device) -> PlayRound:
    loop = PeftLoop(workload, device)
    loop.train(workload.batches(0, 0)[:2])  # warm up; a whole round would take as long as the measured one

    def play(index: int) -> None:
        sums = [torch.zeros_like(p) for p in loop.trained]
        for client in range(workload.clients):
            with torch.no_grad():
                torch._foreach_copy_(loop.trained, loop.shared)
            loop.train(workload.batches(index, client))
            with torch.no_grad():
                torch._foreach_add_(sums, torch._foreach_sub(loop.trained, loop.shared))
        torch._foreach_add_(loop.shared, sums, alpha=1 / workload.clients)

    return play


def one_batch(workload: AdapterWorkload, device: torch.device) -> PlayRound:
    loop = PeftLoop(workload, device)

    def play(index: int) -> None:
        by_client = [workload.batches(index, client) for client in range(workload.clients)]
        loop.train([np.concatenate(step) for step in zip(*by_client, strict=True)])

    return play


SYSTEMS: dict[str, Callable[[AdapterWorkload, torch.device], PlayRound]]
SYSTEMS = {"bare": bare, "packed": PackedRounds, "one batch": one_batch}


def measure(args: argparse.Namespace, workload: AdapterWorkload) -> dict[str, Any]:
    device, results = torch.device(args.device), dict[str, Any]()
    for name in args.systems:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        play = SYSTEMS[name](workload, device)
        rounds = 1 if name == "bare" else args.rounds
        warmup = {"bare": 0, "packed": args.warmup}.get(name, 1)
        times = []
        for index in range(warmup + rounds):
            start = time.perf_counter()
            play(index)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
        results[name] = {"seconds": sum(times[warmup:]) / rounds, "rounds": times, "peak_gb": peak}
        print(f"{name}: {results[name]}", flush=True)
        if args.profile and isinstance(play, PackedRounds):
            print(play.profile(len(times)), flush=True)
        del play
    if "bare" in results and "packed" in results:
        results["ratio"] = results["bare"]["seconds"] / results["packed"]["seconds"]
    return results


def processor_seconds() -> float:
    """Return the processor time of this process and its workers."""
    import psutil

    process = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (process, *process.children(recursive=True)))


def measure_in_turns(args: argparse.Namespace, workload: AdapterWorkload) -> dict[str, Any]:
    """Time the systems in turns, round by round; return the medians."""
    systems = {name: SYSTEMS[name](workload, torch.device(args.device)) for name in args.systems}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    for index in range(args.warmup + args.rounds):
        for name, play in systems.items():
            before, start = processor_seconds(), time.perf_counter()
            play(index)
            times[name].append((processor_seconds() - before, time.perf_counter() - start))
        print(f"round {index}: { {name: t[-1] for name, t in times.items()} }", flush=True)
    results: dict[str, Any] = {}
    for name, rounds in times.items():
        processor, wall = map(statistics.median, zip(*rounds[args.warmup :], strict=True))
        results[name] = {"processor_seconds": processor, "seconds": wall}
    if "bare" in results and "packed" in results:
        results["ratio"] = results["packed"]["processor_seconds"] / results["bare"]["processor_seconds"]
    return results


def measure_generation(args: argparse.Namespace, workload: AdapterWorkload) -> dict[str, Any]:
    """Compare greedy decoding of many prompts with transformers' `generate`, called batch by batch."""
    device, model, features = torch.device(args.device), workload.model(), workload.features
    model.to_device(device)
    executor, rows = PackedExecutor(device), np.arange(min(args.generate, len(features)))
    job = Infer(model, model.initial_params, Examples(features, rows), GeneratedCompletions(args.new_tokens))
    results = {}
    for attempt in ("first", "seconds"):
        start = time.perf_counter()
        executor.run(job)
        torch.cuda.synchronize()
        results[attempt] = time.perf_counter() - start
        print(f"motet, {attempt}: {results[attempt]:.2f} s", flush=True)
    module = model.module.eval()
    start, rows = time.perf_counter(), rows[: args.generate_peer]
    for begin in range(0, len(rows), args.generate_batch):
        batch = features.batch(rows[begin : begin + args.generate_batch])
        starts = batch["completion_start"]
        prompts = [batch["input_ids"][i, : int(s)] for i, s in enumerate(starts)]
        padded = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True, padding_side="left").to(device)
        with torch.no_grad():
            module.generate(
                input_ids=padded, attention_mask=(padded != 0).long(), max_new_tokens=args.new_tokens, do_sample=False
            )
    torch.cuda.synchronize()
    scale = len(job.examples) / len(rows)  # prompts are in random order
    transformers_seconds = scale * (time.perf_counter() - start)
    return {**results, "transformers": transformers_seconds, "prompts": len(job.examples), "measured": len(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="1.1b")
    parser.add_argument("--model", type=Path, help="A directory with pretrained weights, instead of random ones.")
    parser.add_argument("--texts", type=Path, help="Token ids of real prompts and completions, an .npz file.")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=2, help="Rounds of Motet before the measured ones.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--generate", type=int, default=0, help="Measure greedy decoding of this many prompts instead.")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--generate-batch", type=int, default=16)
    parser.add_argument("--generate-peer", type=int, default=192, help="Prompts for transformers; the time is scaled.")
    parser.add_argument("--profile", action="store_true", help="Also show the kernels of a round of Motet on a GPU.")
    parser.add_argument("--json", type=Path, help="Append the results to this file, one JSON object per line.")
    args = parser.parse_args()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    workload = AdapterWorkload(
        args.size, args.clients, args.steps, args.rows, args.tokens, args.rank, args.texts, args.model, dtype
    )
    if args.generate:
        row = measure_generation(args, workload)
    else:
        row = measure(args, workload) if args.device == "cuda" else measure_in_turns(args, workload)
        parameters = sum(p.numel() for p in workload.module().parameters())
        row["tokens"], row["limit"] = workload.count_tokens(), 4 * parameters * workload.count_tokens() / PEAK_FLOPS
    print(json.dumps({"size": args.size, "clients": args.clients, **row}), flush=True)
    if args.json:
        with args.json.open("a") as file:
            file.write(json.dumps({"size": args.size, "clients": args.clients, **row}) + "\n")


if __name__ == "__main__":
    main()
