"""pfl (pfl-research, PyPI `pfl`) on the benchmarks' workload: its SimulatedBackend, FederatedAveraging and PyTorchModel.

    python -m benchmarks.peers [--size 2x128] [--cohort 10] [--rounds 4]       compare pfl's weights with the bare loop's

pfl gets what the bare loop gets: texts already on the device, fused optimizers, bfloat16 autocast on a GPU, the same batches
and no evaluation. It has no schedule for the local learning rate, so its optimizer sets the rate before each step.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.workload import Workload
from motet.learning.solver import Solver


class Classifier(nn.Module):
    """A model with the interface of pfl: a loss, and metrics that need no forward pass."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.module(input_ids=ids, attention_mask=mask, labels=labels).loss
        return loss

    def metrics(self, ids: Tensor, mask: Tensor, labels: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"examples": Weighted(len(labels), 1)}  # pfl always evaluates in its first round; this costs nothing


class Pfl:
    """One process of pfl. It finds the other processes by pfl's environment variables."""

    def __init__(self, workload: Workload, solver: Solver, device: torch.device, freeze: int = 0) -> None:
        os.environ["PFL_PYTORCH_DEVICE"] = str(device)
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.hyperparam.base import NNTrainHyperParams
        from pfl.model.pytorch import PyTorchModel

        self.workload, self.solver, self.index = workload, solver, 0
        self.ids, self.labels = (torch.from_numpy(a).to(device).long() for a in workload.texts())
        self.mask = torch.ones_like(self.ids)
        self.module = Classifier(workload.module(freeze)).to(device).train()
        server_optimizer = torch.optim.SGD(self.module.parameters(), lr=1.0, fused=True)
        amp_dtype = torch.bfloat16 if device.type == "cuda" else None
        self.model = PyTorchModel(self.module, self._local_optimizer, server_optimizer, amp_dtype=amp_dtype)
        self.users: Iterator[int] = iter(())
        self.dataset = FederatedDataset(self._client_data, lambda: next(self.users))
        self.backend = SimulatedBackend(training_data=self.dataset, val_data=self.dataset)
        self.algorithm = FederatedAveraging()
        self.hyperparameters = NNTrainHyperParams(
            local_batch_size=solver.batch,
            local_num_epochs=1,
            local_learning_rate=solver.learning_rate,
            local_max_grad_norm=solver.clip,
        )

    def round(self, index: int, cohort: list[int]) -> None:
        from pfl.algorithm.base import NNAlgorithmParams

        # Every process draws users for all processes, and one too many if the cohort is odd.
        self.index, self.users = index, chain(cohort, repeat(cohort[0]))
        params = NNAlgorithmParams(
            central_num_iterations=self.algorithm._current_central_iteration + 1,
            evaluation_frequency=10**9, train_cohort_size=len(cohort), val_cohort_size=None,
        )  # fmt: skip
        self.algorithm.run(params, self.backend, self.model, self.hyperparameters, send_metrics_to_platform=False)

    def weights(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters() if p.requires_grad])

    def _client_data(self, client: int) -> Any:
        from pfl.data.pytorch import PyTorchTensorDataset

        batches = np.concatenate(self.workload.batches(self.solver, self.index, client))
        rows = torch.from_numpy(batches).to(self.ids.device)
        return PyTorchTensorDataset((self.ids[rows], self.mask[rows], self.labels[rows]), user_id=str(client))

    def _local_optimizer(self, params: Any, lr: float) -> torch.optim.Optimizer:
        trained = [p for p in params if p.requires_grad]
        optimizer: torch.optim.Optimizer
        if self.solver.optimizer == "sgd":
            optimizer = torch.optim.SGD(trained, lr=lr, fused=True)
        else:
            optimizer = torch.optim.AdamW(trained, lr=lr, fused=True, weight_decay=0.0)
        steps = self.solver.num_steps(self.workload.examples)
        rates = iter(self.solver.learning_rate_at(step, steps) for step in range(steps))

        def set_rate(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            optimizer.param_groups[0]["lr"] = next(rates)

        optimizer.register_step_pre_hook(set_rate)
        return optimizer


def pfl_round(
    workload: Workload, solver: Solver, device: torch.device, freeze: int = 0
) -> Callable[[int, list[int]], None]:
    """Return a function that plays one round of pfl in this process."""
    return Pfl(workload, solver, device, freeze).round


@contextmanager
def pfl_processes(
    workload: Workload, solver: Solver, workers: int, freeze: int = 0
) -> Iterator[Callable[[int, list[int]], None]]:
    """Run pfl on the CPU in processes with one thread each, which sum with gloo. They read rounds from standard input."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    config = json.dumps({"workload": asdict(workload), "solver": asdict(solver), "freeze": freeze})
    command = [sys.executable, "-m", "benchmarks.peers", "--serve", config]
    with ExitStack() as stack:
        processes = []
        for rank in range(workers):
            pfl_variables = {"PFL_WORKER_RANK": str(rank), "PFL_WORKER_ADDRESSES": ",".join([address] * workers)}
            limits = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **pfl_variables, **limits},
            )
            processes.append(stack.enter_context(process))

        def play(index: int, cohort: list[int]) -> None:
            for process in processes:
                print(json.dumps([index, cohort]), file=process.stdin, flush=True)
            for process in processes:
                if process.stdout.readline() != "done\n":
                    raise RuntimeError("a pfl process ended; its output is above")

        for process in processes:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a pfl process did not start; its output is above")
        try:
            yield play
        finally:
            for process in processes:  # closing the pipe is not enough: workers forked since then hold it open
                with suppress(BrokenPipeError):
                    print("null", file=process.stdin, flush=True)


def serve(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    system = Pfl(Workload(**config["workload"]), Solver(**config["solver"]), torch.device("cpu"), config["freeze"])
    print("ready", flush=True)
    while command := json.loads(sys.stdin.readline()):
        system.round(*command)
        print("done", flush=True)


def check(args: argparse.Namespace) -> None:
    from benchmarks.bare import Bare

    workload = Workload(args.size, clients=args.cohort + 2, tokens=args.tokens)
    solver = Solver(optimizer=args.optimizer, batch=16)
    bare, pfl = Bare(workload, solver, 1, args.freeze), Pfl(workload, solver, torch.device("cpu"), args.freeze)
    start = bare.params.clone()
    for index in range(args.rounds):
        cohort = np.random.default_rng(index).choice(workload.clients, args.cohort, replace=False).tolist()
        bare.round(index, cohort)
        pfl.round(index, cohort)
        difference = (pfl.weights() - bare.params).norm() / (bare.params - start).norm()
        print(f"round {index}: relative difference of pfl's and the bare loop's updates: {difference:.1e}")
    bare.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2x128")
    parser.add_argument("--cohort", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--freeze", type=int, default=0)
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
    else:
        check(args)


if __name__ == "__main__":
    main()
