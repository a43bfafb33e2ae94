"""python -m tests.fuzz decoder|assembly|doorstep [seconds]: let atheris look for bytes that break a target.

What it finds is written as crash-… into the folder it is called from; give that file as the second word to see it again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["motet.wire", "motet.transport", "motet.core"]):
    from tests.fuzz.targets import TARGETS, seeds


def main() -> None:
    name, more = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    with tempfile.TemporaryDirectory(prefix="fuzz-") as corpus:
        if more.isdigit():
            for index, seed in enumerate(seeds(name)):
                (Path(corpus) / f"seed-{index}").write_bytes(seed)
            options = [
                corpus,
                f"-max_total_time={more}",
                "-max_len=4096",
                "-rss_limit_mb=4096",
                "-timeout=20",
                "-print_final_stats=1",
            ]
        else:
            options = [more]
        atheris.Setup([sys.argv[0], *options], TARGETS[name])
        atheris.Fuzz()


main()
