"""The training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.rng import Seed, own_randomness
from motet.learning.features import Examples
from motet.learning.jobs import Course, Fit, Fitted, Infer, Momenta, Readings
from motet.learning.objectives import Batch
from motet.learning.pack import Pack
from motet.learning.solver import Solver

Read = Callable[[Examples, np.ndarray], Mapping[str, Tensor]]
_MOMENTS = {"sgd": ("momentum_buffer",), "adamw": ("exp_avg", "exp_avg_sq")}


def fit(job: Fit, pack: Pack, read: Read) -> Fitted:
    """One client's local training. `read` gives the batch of some examples."""
    solver, seed = job.solver, Seed(job.seed)
    order = solver.order(len(job.examples), seed.of("order").numpy())
    course = job.course or Course(0, len(order))
    pack.load(job.start, _words(job))
    pack.train()
    flat, grad = pack.flat[0, : pack.size], pack.grad[0, : pack.size]
    weights = nn.Parameter(flat)
    weights.grad = grad
    optimiser = _optimiser(solver, weights)
    _recall(optimiser, weights, job, pack)
    decay = _decayed(pack, job, _with_beside(job, read), order) if solver.weight_decay else None
    read = _with_beside(job, read)
    anchor = pack.taken(job.anchor or job.start) if solver.pull else None
    losses = torch.zeros(len(order), device=pack.device)
    with own_randomness(seed.of("dropout").number(), pack.device):
        for step, places in enumerate(order):
            rate = solver.rate_at(course.done + step, course.steps)
            losses[step] = _backward(job, pack, _to(read(job.examples, places), pack.device))
            if anchor is not None:
                grad.add_(flat - anchor, alpha=solver.pull)
            if solver.clip:
                grad.mul_((solver.clip / (torch.linalg.vector_norm(grad) + 1e-6)).clamp(max=1))
            if decay is not None:
                flat.addcmul_(flat, decay, value=-rate * solver.weight_decay)
            optimiser.param_groups[0]["lr"] = rate
            optimiser.step()
    losses = losses.cpu()
    end = pack.given(job.start)
    _check(job, losses, end)
    momenta = _kept(optimiser, weights, job, pack) if job.keep_momenta else None
    return Fitted(end, losses, sum(len(places) for places in order), momenta)


def infer(job: Infer, pack: Pack, read: Read) -> Readings:
    """Texts of like length stand together, so little is padded; the answer is in the examples' order."""
    pack.load(job.params)
    pack.module.eval()
    by_length = np.argsort(job.examples.lengths, kind="stable")
    places = [by_length[at : at + job.batch] for at in range(0, len(by_length), job.batch)]
    with torch.no_grad():
        found = [job.readout.read(pack, _to(read(job.examples, p), pack.device)) for p in places]
    return joined(found, np.concatenate(places) if places else np.zeros(0, np.int64))


def joined(parts: list[Readings], places: np.ndarray) -> Readings:
    """Readings of batches as one table; rows of different widths are filled with −100."""
    table: Readings = {}
    for name in parts[0] if parts else ():
        columns = [part[name].cpu() for part in parts]
        width = max(c.shape[1] for c in columns) if columns[0].dim() > 1 else 0
        wide = [nn.functional.pad(c, (0, width - c.shape[1]), value=-100) if width else c for c in columns]
        table[name] = torch.empty_like(whole := torch.cat(wide))
        table[name][torch.from_numpy(places)] = whole
    return table


def _with_beside(job: Fit, read: Read) -> Read:
    """Batches with the examples that stand beside the job's own, if there are any."""
    beside = job.beside
    if beside is None:
        return read
    rng = Seed(job.seed).of("beside").numpy()
    return lambda examples, places: {**read(examples, places), **beside.batch(places, rng)}


def _words(job: Fit) -> Tensor | None:
    """The words of the examples, where training moves the embeddings of no others; None where it may."""
    spread = job.solver.weight_decay or job.momenta or job.keep_momenta
    if spread or (job.solver.pull and job.anchor is not None) or not len(job.examples):
        return None
    return torch.from_numpy(job.examples.words())


def _backward(job: Fit, pack: Pack, batch: Batch) -> Tensor:
    pack.grad[0, : pack.size].zero_()
    losses, worth = job.objective.losses(pack, batch)
    loss = (losses * worth).sum() / worth.sum().clamp(min=1e-9)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _to(batch: Batch, device: torch.device) -> Batch:
    return batch if device.type == "cpu" else {n: t.to(device, non_blocking=True) for n, t in batch.items()}


def _optimiser(solver: Solver, weights: nn.Parameter) -> torch.optim.Optimizer:
    # Weight decay is done by hand in the loop, on matrices only: one vector has one decay, and biases must have none.
    match solver.optimizer:
        case "sgd":
            return torch.optim.SGD([weights], lr=solver.rate, momentum=solver.momentum, fused=True)
        case "adamw":
            return torch.optim.AdamW([weights], lr=solver.rate, weight_decay=0.0, fused=True)


def _decayed(pack: Pack, job: Fit, read: Read, order: list[np.ndarray]) -> Tensor:
    """1 where weight decay acts: on matrices that the objective reaches. What gets no gradient is not trained at all."""
    if job.objective in pack.decayed:
        return pack.decayed[job.objective]
    mask = torch.zeros_like(pack.flat[0])
    if order:
        for leaf in pack.leaves.values():
            leaf.grad = None
        with own_randomness(0, pack.device):
            losses, _ = job.objective.losses(pack, _to(read(job.examples, order[0]), pack.device))
            losses.sum().backward()  # type: ignore[no-untyped-call]
        for (name, gradient), (_, acts) in zip(pack.windows(pack.grad[0]), pack.windows(mask), strict=True):
            leaf = pack.leaves[name]
            if leaf.grad is not None and leaf.dim() > 1:
                acts.fill_(1)
            leaf.grad = gradient
        pack.decayed[job.objective] = mask
    return mask


def _recall(optimiser: torch.optim.Optimizer, weights: nn.Parameter, job: Fit, pack: Pack) -> None:
    if job.momenta is not None:
        names = _MOMENTS[job.solver.optimizer]
        moments = {n: pack.taken(m) for n, m in zip(names, job.momenta.moments, strict=False)}
        optimiser.state[weights] = {"step": torch.tensor(float(job.momenta.steps)), **moments}


def _kept(optimiser: torch.optim.Optimizer, weights: nn.Parameter, job: Fit, pack: Pack) -> Momenta:
    state = optimiser.state[weights]
    before = job.momenta.steps if job.momenta else 0
    found = [state[n] for n in _MOMENTS[job.solver.optimizer] if state.get(n) is not None]
    return Momenta(int(state.get("step", before)), tuple(pack.given(job.start, m) for m in found))


def _check(job: Fit, losses: Tensor, end: Params) -> None:
    wrong = (~torch.isfinite(losses)).nonzero()
    if len(wrong) or not end.finite():
        step = int(wrong[0]) if len(wrong) else len(losses) - 1
        value = "an update that is not finite" if not len(wrong) else f"a loss of {float(losses[step]):g}"
        clip = f"clip {job.solver.clip:g}" if job.solver.clip else "no clipping"
        raise RunError(
            f"training gave {value} at step {step + 1} of {len(losses)} ({job.solver.optimizer}, lr {job.solver.rate:g}, "
            f"{clip}), where finite numbers were expected; lower solver.lr or set solver.clip=1.0."
        )
