"""Peak memory is measured seldom if measuring takes long."""

from __future__ import annotations

import pytest

from motet.experiment.loop.peak_memory import PeakMemory


def test_measuring_takes_a_small_share_of_the_time() -> None:
    memory = PeakMemory(interval=1.0, max_share=0.01)
    assert memory.pause_after(0.001) == 1.0
    assert memory.pause_after(0.125) == pytest.approx(12.5)


def test_the_peak_is_measured_in_the_background_and_at_the_end() -> None:
    with PeakMemory(interval=0.01) as memory:
        pass
    assert memory.peak > 10e6
