"""Figures of results appear in notebooks."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest

from motet.report.result_plots import plot_curves


def test_drawing_a_result_loads_the_backend_that_shows_figures_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter's backend says how to show a figure. pyplot loads it when it is first used, not when it is imported."""
    uses: list[str] = []
    backend = SimpleNamespace(draw_if_interactive=lambda: uses.append("backend"))
    monkeypatch.setattr(plt, "_get_backend_mod", lambda: backend)
    plot_curves({"accuracy": [(1, 0.5), (2, 0.7)]}, "accuracy", "matplotlib")
    assert uses == ["backend"]
