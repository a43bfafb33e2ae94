"""A sum has one shape: parts of it that are computed in other places give the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.sums import TOLERANT, VectorProgram, make_runtime, run_sum

from motet.codecs.chain import Channel, CodecChain
from motet.codecs.half_precision import float16
from motet.core.errors import RunError
from motet.core.params import Params
from motet.core.script import work
from motet.core.weighted import BLOCK, PartialSum, RunningSum, TermLimits, Weighted
from motet.experiment.deploy.ray_load_balancing import TimeEstimates, WorkItem, spread
from motet.experiment.deploy.ray_partial_sums import PartialSumRunner, PartialSumTask, TaskStates, TaskSum, sum_terms
from motet.learning.executors.serial_executor import SerialExecutor
from motet.transport.in_process import InProcessTransport
from motet.transport.mailbox import Mailbox
from motet.transport.reorder_buffer import ReorderBuffer
from motet.transport.requests import Reply, Request


def terms(count: int, size: int = 50) -> list[Weighted]:
    generator = torch.Generator().manual_seed(count)
    scales = torch.randn(count, 1, generator=generator).exp()
    vectors = torch.randn(count, size, generator=generator) * scales  # so that another order rounds differently
    return [Weighted(Params.from_tensors({"w": v}), 1.0 + 0.1 * k) for k, v in enumerate(vectors)]


@dataclass(frozen=True)
class FailingProgram(VectorProgram):
    @work(reveals="sum")
    def send_vector(self, ctx: Any, payload: Any, client_state: None) -> tuple[Weighted, None]:
        if ctx.client == "client-20":
            raise RunError("no data")
        return self.vectors[ctx.client], None


def sum_of(values: list[Weighted]) -> RunningSum:
    running = RunningSum()
    for value in values:
        running.add("", value)
    return running


def add_in_pairs(parts: list[PartialSum]) -> PartialSum:
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return add_in_pairs(parts[:half]) + add_in_pairs(parts[half:])


@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 1, 3 * BLOCK, 7 * BLOCK + 5, 16 * BLOCK])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_parts_of_whole_subtrees_add_up_to_the_bits_of_the_whole_sum(count: int, blocks: int) -> None:
    values, size = terms(count), blocks * BLOCK
    parts = [sum_of(values[start : start + size]).part() for start in range(0, count, size)]
    whole = sum_of(values).value()
    assert add_in_pairs(parts).mean().value.flat.equal(whole.value.flat)
    assert add_in_pairs(parts).weight == whole.weight == pytest.approx(sum(v.weight for v in values))
    expected = sum(v.value.flat.double() * v.weight for v in values) / whole.weight
    assert torch.allclose(whole.value.flat.double(), torch.as_tensor(expected), atol=1e-5)


def test_a_client_without_a_reply_keeps_its_place() -> None:
    values = terms(3 * BLOCK)
    first = sum_of(values[:BLOCK])
    first.skip()
    for value in values[BLOCK + 1 :]:
        first.add("", value)
    second = sum_of(values[BLOCK + 1 : 2 * BLOCK])
    parts = [sum_of(values[:BLOCK]).part(), second.part(), sum_of(values[2 * BLOCK :]).part()]
    assert first.value().value.flat.equal(add_in_pairs(parts).mean().value.flat)


@pytest.mark.parametrize("is_summed", [True, False], ids=["parts", "terms"])
def test_an_actor_sums_the_replies_of_its_clients_as_one_process_does(is_summed: bool) -> None:
    """One client fails, and one replies with numbers that are not finite."""
    values = terms(2 * BLOCK + 3)
    vectors = {f"client-{k:02}": value for k, value in enumerate(values)}
    vectors["client-07"] = Weighted(vectors["client-07"].value * math.inf, 1.0)
    program = FailingProgram(vectors)
    mailbox = Mailbox(InProcessTransport(make_runtime([program])), TOLERANT)
    expected = run_sum(program.round(), mailbox)

    requests = tuple(Request(1 + k, name, 0, "vectors.send_vector", 0) for k, name in enumerate(sorted(vectors)))
    runner = PartialSumRunner(make_runtime([program]), TaskStates())
    shares = [requests[start : start + BLOCK] for start in range(0, len(requests), BLOCK)]
    outcomes = runner.run([PartialSumTask("", share, (None,), TermLimits(), is_summed) for share in shares])
    parts = [result if isinstance(result, PartialSum) else sum_terms(result, TermLimits()) for _, result in outcomes]
    mean = add_in_pairs(parts).mean()
    assert mean.value.flat.equal(expected.value.flat)
    assert mean.weight == expected.weight
    reports = {
        r.client: report
        for share, (o, _) in zip(shares, outcomes, strict=True)
        for r, report in zip(share, o.replies, strict=True)
    }
    assert {c for c, report in reports.items() if report.error} == {"client-20"}
    assert {c for c, report in reports.items() if report.problem} == {"client-07"}
    assert sum(report.wire_bytes for report in reports.values()) == mailbox.traffic.wire_up


@dataclass(frozen=True)
class RecordingProgram(VectorProgram):
    payloads: list[Any] = field(default_factory=list)

    @work(reveals="sum")
    def send_vector(self, ctx: Any, payload: Any, client_state: None) -> tuple[Weighted, None]:
        self.payloads.append(payload["model"])
        return self.vectors[ctx.client], None


def test_an_actor_decodes_the_model_and_moves_it_to_its_device_once_for_all_clients() -> None:
    program = RecordingProgram({f"client-{k}": value for k, value in enumerate(terms(3))})
    channel = Channel(down=CodecChain((float16(),)))
    runtime = make_runtime([program], channel=channel)
    runtime.executor = SerialExecutor(torch.device("meta"))  # the only other device that every machine has
    payload = channel.down.encode({"model": terms(1)[0].value})
    requests = tuple(Request(1 + k, f"client-{k}", 0, "vectors.send_vector", 0) for k in range(3))
    PartialSumRunner(runtime, TaskStates()).run(
        [PartialSumTask("", requests, (payload,), TermLimits(), is_summed=True)]
    )
    assert len({id(params) for params in program.payloads}) == 1
    assert {params.flat.device.type for params in program.payloads} == {"meta"}


def test_replies_of_an_actor_that_come_early_wait_in_files() -> None:
    values = terms(3)
    requests = tuple(Request(1 + k, f"client-{k}", 0, "vectors.send_vector", 0) for k in range(3))
    early = ReorderBuffer(budget=0)
    term_sum = TaskSum(PartialSumTask("", requests, (None,), TermLimits(), is_summed=True), Channel(), early)
    for k in (2, 1):
        term_sum.take(Reply(1 + k, f"client-{k}", values[k]), float(k))
    assert len(early) == 2
    assert not term_sum.reports
    term_sum.take(Reply(1, "client-0", values[0]), 0.0)
    report, part = term_sum.finish()
    assert report.seconds == (0.0, 1.0, 2.0)
    assert isinstance(part, PartialSum)
    assert part.mean().value.flat.equal(sum_of(values).value().value.flat)
    assert not early


@dataclass(frozen=True)
class Load:
    items: tuple[WorkItem, ...]


def test_the_longest_tasks_are_spread_first_and_evenly() -> None:
    seconds = [1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]
    queue = sorted((-s, k, Load((WorkItem("fit", k, s),))) for k, s in enumerate(seconds))
    batches = spread(queue, idle=2, actors=2, capacity=100)
    assert [sum(load.items[0].amount for load in batch) for batch in batches] == [18.0, 18.0]
    assert not queue
    queue = sorted((-s, k, Load((WorkItem("fit", k, s),))) for k, s in enumerate(seconds))
    assert [[load.items[0].amount for load in b] for b in spread(queue, 1, 2, 1)] == [[8.0]]  # one client at a time
    assert len(queue) == 7


def test_times_of_earlier_rounds_replace_the_number_of_examples() -> None:
    estimates = TimeEstimates()
    small, large, new = WorkItem("train", "a", 10.0), WorkItem("train", "b", 100.0), WorkItem("train", "c", 55.0)
    assert estimates.estimate([small]) < estimates.estimate([large])
    estimates.record([small, large], [5.0, 0.5])
    assert estimates.estimate([small, large]) == 5.5
    assert estimates.estimate([new]) == pytest.approx(55 * 5.5 / 110)
    estimates.record_total([small, large], 11.0)  # trained together
    assert estimates.estimate([small]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("clients", "actors", "packs", "size"),
    [
        (10, 1, False, 16),
        (1000, 1, True, 1024),
        (64, 4, True, 16),
        (10, 4, True, 1),
        (64, 4, False, 1),
        (1000, 4, False, 64),
    ],
)
def test_a_part_is_a_subtree_if_every_actor_gets_enough_of_them(
    clients: int, actors: int, packs: bool, size: int
) -> None:
    from motet.experiment.deploy.ray_transport import choose_part_size

    assert choose_part_size(clients, actors, packs) == size
