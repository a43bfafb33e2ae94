"""Under differential privacy no client sends more than the clip, whatever codecs follow the clipping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_codecs import CHAINS
from tests.sums import TOLERANT, LossyTransport, VectorProgram, make_runtime, make_vectors, run_sum

from motet.algorithms import fedavg
from motet.codecs import clip
from motet.codecs.chain import Channel, CodecChain
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.script import rewrite_sums
from motet.core.weighted import RunningSum, Weighted
from motet.experiment.build.run_components import RunComponents
from motet.privacy import central, distributed
from motet.secure import SECURE
from motet.secure.sum_messages import MaskedTotal
from motet.transport.mailbox import Mailbox

CLIP, ROUNDS, CLIENTS = 0.5, 6, 4
PROTOCOLS = [name for name in SECURE if name != "none"]


@pytest.mark.parametrize("name", [*CHAINS, "none"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_plain_reply_exceeds_the_clip(name: str, seed: int) -> None:
    """Error feedback adds earlier residuals after the clipping, and int4 rounds up. Both once made ε too small."""
    mechanism, chain = central(CLIP, 1e-9), CodecChain(CHAINS.get(name, ()))
    program = VectorProgram(make_vectors(CLIENTS, size=37, seed=seed))
    runtime = make_runtime([program, mechanism], channel=Channel(up=chain, seed=Seed(seed)))
    transport = LossyTransport(runtime)
    mailbox = Mailbox(transport, TOLERANT, Channel(up=chain))
    for round in range(ROUNDS):
        mailbox.start_round(round)
        summation = mechanism.make_summation(Seed(seed), lambda clients, key: None)
        mean = run_sum(rewrite_sums(summation, program.round()), mailbox)
        assert mean.value.norm() <= CLIP * (1 + 1e-6)
    assert len(transport.replies) == ROUNDS * CLIENTS
    for _, reply in transport.replies:
        assert chain.decode(reply.value).value.norm() <= CLIP


def test_the_server_shortens_a_reply_that_exceeds_the_clip() -> None:
    """A client that does not clip cannot make ε wrong for the others."""
    collector = RunningSum(central(CLIP, 1.0).term_limits)
    vector = Params.from_tensors({"x": torch.full((4,), 100.0)})
    collector.add("liar", Weighted(vector, 1e12))
    assert collector.part().weight == 1.0
    assert collector.value().value.norm() == pytest.approx(CLIP)


def make_secure(protocol: str, mechanism: Any, codecs: CodecChain) -> Any:
    return RunComponents(fedavg(), secure=SECURE[protocol](codecs=codecs), privacy=mechanism).secure


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("codecs", [CodecChain(), CodecChain((clip(0.4),))], ids=["no codec", "clip"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 4000), seed=st.integers(0, 10**6), scale=st.sampled_from([1e-9, 0.01, 1.0]))
def test_no_masked_reply_exceeds_the_clip(
    protocol: str, codecs: CodecChain, dtype: torch.dtype, size: int, seed: int, scale: float
) -> None:
    """Rounding to integers may lengthen a vector, by more the more numbers it has."""
    secure = make_secure(protocol, central(CLIP, 1.0), codecs)
    encoding, masking, address = secure.encoding, secure.masking, "private.clipped"
    vector = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=dtype) * scale
    vector *= min(1.0, CLIP / float(vector.norm()))
    reply = Weighted(Params.from_tensors({"x": vector}), 1.0)
    encoded = encoding.encode(reply, address, CLIENTS, masking, np.random.default_rng(seed))
    total = MaskedTotal(("a",), encoded.layout, encoded.is_double, torch.from_numpy(encoded.words.view(np.int32)))
    decoded = encoding.decode(encoded.words.copy(), total, address, CLIENTS, masking)
    assert decoded.weight == 1.0
    assert decoded.value.norm() <= CLIP * (1 + 1e-9)
    assert (decoded.value.flat - vector).norm() <= 1e-4 or codecs.codecs


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 4000), seed=st.integers(0, 10**6))
def test_no_integer_reply_with_noise_exceeds_the_clip(protocol: str, size: int, seed: int) -> None:
    secure = make_secure(protocol, distributed(CLIP, 1.0), CodecChain())
    noise, minimum = secure.encoding.noise["private.clipped"], secure.masking.min_survivors(CLIENTS)
    resolution = noise.resolution(CLIENTS, minimum, secure.masking.modulus)
    vector = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 100
    integers = noise._round(vector, resolution, np.random.default_rng(seed)).astype(np.int64)
    assert int(integers @ integers) <= resolution**2


def test_a_clip_below_the_rounding_of_a_secure_sum_is_rejected() -> None:
    secure = make_secure("secagg", central(1e-8, 1.0), CodecChain())
    reply = Weighted(Params.from_tensors({"x": torch.zeros(10_000)}), 1.0)
    with pytest.raises(ConfigError, match="lower secure"):
        secure.encoding.encode(reply, "private.clipped", CLIENTS, secure.masking, np.random.default_rng(0))
