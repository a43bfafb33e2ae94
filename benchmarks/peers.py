"""pfl (pfl-research, PyPI `pfl`) on the benchmarks' workload: its SimulatedBackend, FederatedAveraging and PyTorchModel.

    python -m benchmarks.peers [--size 2x128] [--cohort 10] [--rounds 4]       how far pfl's weights end from the bare loop's

pfl gets what the bare loop gets: texts already on the device, fused optimisers, bf16 autocast on a GPU, the same batches, no
evaluation. It has no schedule of the local rate, so the optimiser it is given sets its own rate before each step.
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
    """A model as pfl wants it: with a loss, and metrics, which are never asked for anything that costs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.module(input_ids=ids, attention_mask=mask, labels=labels).loss
        return loss

    def metrics(self, ids: Tensor, mask: Tensor, labels: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {
            "examples": Weighted(len(labels), 1)
        }  # pfl always evaluates in its first round: without a forward pass here


class Pfl:
    """One process of pfl; others with which it shares the rounds are found by its own environment variables."""

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
        centre = torch.optim.SGD(self.module.parameters(), lr=1.0, fused=True)
        half = torch.bfloat16 if device.type == "cuda" else None
        self.model = PyTorchModel(self.module, self._optimiser, centre, amp_dtype=half)
        self.users: Iterator[int] = iter(())
        self.texts = FederatedDataset(self._client, lambda: next(self.users))
        self.backend = SimulatedBackend(training_data=self.texts, val_data=self.texts)
        self.algorithm = FederatedAveraging()
        self.training = NNTrainHyperParams(
            local_batch_size=solver.batch,
            local_num_epochs=1,
            local_learning_rate=solver.learning_rate,
            local_max_grad_norm=solver.clip,
        )

    def round(self, index: int, cohort: list[int]) -> None:
        from pfl.algorithm.base import NNAlgorithmParams

        # Every process draws for all of them, and with an odd cohort once too often.
        self.index, self.users = index, chain(cohort, repeat(cohort[0]))
        params = NNAlgorithmParams(
            central_num_iterations=self.algorithm._current_central_iteration + 1,
            evaluation_frequency=10**9, train_cohort_size=len(cohort), val_cohort_size=None,
        )  # fmt: skip
        self.algorithm.run(params, self.backend, self.model, self.training, send_metrics_to_platform=False)

    def weights(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters() if p.requires_grad])

    def _client(self, client: int) -> Any:
        from pfl.data.pytorch import PyTorchTensorDataset

        order = np.concatenate(self.workload.rows(self.solver, self.index, client))
        rows = torch.from_numpy(order).to(self.ids.device)
        return PyTorchTensorDataset((self.ids[rows], self.mask[rows], self.labels[rows]), user_id=str(client))

    def _optimiser(self, params: Any, lr: float) -> torch.optim.Optimizer:
        own = [p for p in params if p.requires_grad]
        made: torch.optim.Optimizer
        if self.solver.optimizer == "sgd":
            made = torch.optim.SGD(own, lr=lr, fused=True)
        else:
            made = torch.optim.AdamW(own, lr=lr, fused=True, weight_decay=0.0)
        rates = iter(
            self.solver.learning_rate_at(step, steps)
            for steps in [self.solver.num_steps(self.workload.examples)]
            for step in range(steps)
        )

        def scheduled(optimiser: torch.optim.Optimizer, *_: Any) -> None:
            optimiser.param_groups[0]["lr"] = next(rates)

        made.register_step_pre_hook(scheduled)
        return made


def pfl_round(
    workload: Workload, solver: Solver, device: torch.device, freeze: int = 0
) -> Callable[[int, list[int]], None]:
    """pfl in this process: a call trains one round over a cohort."""
    return Pfl(workload, solver, device, freeze).round


@contextmanager
def pfl_processes(
    workload: Workload, solver: Solver, workers: int, freeze: int = 0
) -> Iterator[Callable[[int, list[int]], None]]:
    """pfl on CPU, so many processes of one thread each, which add their sums up by gloo; rounds come to them by their input."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    job = json.dumps({"workload": asdict(workload), "solver": asdict(solver), "freeze": freeze})
    command = [sys.executable, "-m", "benchmarks.peers", "--serve", job]
    with ExitStack() as stack:
        processes = []
        for rank in range(workers):
            shared = {"PFL_WORKER_RANK": str(rank), "PFL_WORKER_ADDRESSES": ",".join([address] * workers)}
            quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **shared, **quiet}
            )
            processes.append(stack.enter_context(process))

        def round_(index: int, cohort: list[int]) -> None:
            for process in processes:
                print(json.dumps([index, cohort]), file=process.stdin, flush=True)
            for process in processes:
                if process.stdout.readline() != "done\n":
                    raise RuntimeError("A process of pfl ended; what it said stands above.")

        for process in processes:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("A process of pfl did not start; what it said stands above.")
        try:
            yield round_
        finally:
            for process in processes:  # the end of input would not do: workers forked since hold the other end as well
                with suppress(BrokenPipeError):
                    print("null", file=process.stdin, flush=True)


def serve(known: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    system = Pfl(Workload(**known["workload"]), Solver(**known["solver"]), torch.device("cpu"), known["freeze"])
    print("ready", flush=True)
    while job := json.loads(sys.stdin.readline()):
        system.round(*job)
        print("done", flush=True)


def check(args: argparse.Namespace) -> None:
    from benchmarks.bare import Bare

    workload = Workload(args.size, clients=args.cohort + 2, tokens=args.tokens)
    solver = Solver(optimizer=args.optimizer, batch=16)
    bare, theirs = Bare(workload, solver, 1, args.freeze), Pfl(workload, solver, torch.device("cpu"), args.freeze)
    start = bare.params.clone()
    for index in range(args.rounds):
        cohort = np.random.default_rng(index).choice(workload.clients, args.cohort, replace=False).tolist()
        bare.round(index, cohort)
        theirs.round(index, cohort)
        gap = (theirs.weights() - bare.params).norm() / (bare.params - start).norm()
        print(f"round {index}: pfl's weights differ from the bare loop's by {gap:.1e} of the way they went")
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
