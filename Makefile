# Everything happens in .venv, made from the pins in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup system demo test lint fuzz clean

help:
	@echo "make demo    set up, then train across ten clients on real text (motet run quickstart)"
	@echo "make test    set up, then lint, types and all tests"
	@echo "make fuzz    let a fuzzer look for bytes that break the decoder and the door (SECONDS_EACH=300)"
	@echo "make setup   make .venv with everything the demo and the tests need"

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Motet needs Python 3.11 or newer, this is " + sys.version'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch .venv/ready

# A message broker and a browser, which tests talk to. Where they cannot be installed, those tests are skipped, with a word.
system:
	@command -v mosquitto chromium >/dev/null || command -v /usr/sbin/mosquitto chromium >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	     && apt-get update -qq && apt-get install -y -qq --no-install-recommends mosquitto chromium chromium-driver >/dev/null; } \
	|| echo "mosquitto and chromium are not here: tests over MQTT and of the report's page will be skipped"

demo: setup
	$(BIN)/motet run quickstart

lint: setup
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy

test: lint system
	$(BIN)/python -m pytest -n 2

# Not part of the tests: the longer it runs, the more it has seen. A target that breaks leaves crash-… here.
SECONDS_EACH ?= 300
fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	for target in decoder assembly doorstep; do PYTHONPATH=src $(BIN)/python -m tests.fuzz $$target $(SECONDS_EACH) || exit 1; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache
