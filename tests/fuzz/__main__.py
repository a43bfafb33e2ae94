"""python -m tests.fuzz decoder|assembler|connections [seconds]: let atheris search for bytes that break a target.

A crashing input is written as crash-… into the current folder. Pass that file instead of the seconds to reproduce it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["motet.wire", "motet.transport", "motet.core"]):
    from tests.fuzz.targets import TARGETS, make_seeds


def main() -> None:
    target, seconds_or_file = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    with tempfile.TemporaryDirectory(prefix="fuzz-") as corpus:
        if seconds_or_file.isdigit():
            for index, seed in enumerate(make_seeds(target)):
                (Path(corpus) / f"seed-{index}").write_bytes(seed)
            options = [
                corpus,
                f"-max_total_time={seconds_or_file}",
                "-max_len=4096",
                "-rss_limit_mb=4096",
                "-timeout=20",
                "-print_final_stats=1",
            ]
        else:
            options = [seconds_or_file]
        atheris.Setup([sys.argv[0], *options], TARGETS[target])
        atheris.Fuzz()


main()
