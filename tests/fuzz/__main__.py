"""python -m tests.fuzz decoder|assembler|connections|own_files|corpora [seconds]: let atheris search for bytes that break a target.

A crashing input is written as crash-… into the current folder. Pass that file instead of the seconds to reproduce it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["motet.wire", "motet.transport", "motet.core", "motet.datasets"]):
    from tests.fuzz.reader_targets import fuzz_corpora, fuzz_own_files, make_corpus_seeds, make_own_file_seeds
    from tests.fuzz.targets import TARGETS, make_seeds

READERS = {"own_files": (fuzz_own_files, make_own_file_seeds), "corpora": (fuzz_corpora, make_corpus_seeds)}


def main() -> None:
    target, seconds_or_file = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    with tempfile.TemporaryDirectory(prefix="fuzz-") as corpus:
        if seconds_or_file.isdigit():
            seeds = READERS[target][1]() if target in READERS else make_seeds(target)
            for index, seed in enumerate(seeds):
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
        atheris.Setup([sys.argv[0], *options], READERS[target][0] if target in READERS else TARGETS[target])
        atheris.Fuzz()


main()
