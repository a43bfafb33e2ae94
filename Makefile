# Every target uses .venv, which is created from the pins in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
UV := uv==0.13.8
# Python compiles a module when it is first imported, and keeps the result. pip would compile the thousands that nobody imports.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup system demo test lint docs fuzz lock sbom clean

help:
	@echo "make demo    install what the demo needs, then train across ten clients on real text (motet run quickstart)"
	@echo "make test    set up, then run ruff, mypy and all tests"
	@echo "make docs    set up, then build the documentation into site/; a warning is an error"
	@echo "make fuzz    fuzz the decoder, the admission of clients and the readers (SECONDS_EACH=300)"
	@echo "make lock    write the hashes of all packages in constraints.txt to requirements.lock"
	@echo "make sbom    write sbom.cdx.json, a CycloneDX list of the packages in .venv with versions and licenses"
	@echo "make setup   create .venv with everything that the demo, the tests and the documentation need"

setup: .venv/ready

# uv finds the build of torch that fits this machine. The default build on Linux has CUDA and is gigabytes larger.
.venv/demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Motet needs Python 3.11 or newer, this is " + sys.version'
	$(PYTHON) -m venv .venv
	@$(PIP) $(UV) && UV_HTTP_TIMEOUT=20 UV_HTTP_RETRIES=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --torch-backend=auto -c constraints.txt torch 2>/dev/null \
	|| echo "uv found no build of torch for this machine; installing the default one"
	$(PIP) -e '.[demo,report,adapters]'
	touch .venv/demo

.venv/ready: .venv/demo
	$(PIP) -e '.[dev]'
	touch .venv/ready

# Some tests need a message broker and a browser. They are skipped, with a message, where these cannot be installed.
system:
	@command -v mosquitto chromium >/dev/null || command -v /usr/sbin/mosquitto chromium >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	     && apt-get update -qq && apt-get install -y -qq --no-install-recommends mosquitto chromium chromium-driver >/dev/null; } \
	|| echo "mosquitto or chromium is missing: tests of MQTT and of the HTML report will be skipped"

demo: .venv/demo
	$(BIN)/motet run quickstart

lint: setup
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy

# tests/docs builds the documentation too. Three processes on two cores: end-to-end tests often wait for processes.
test: lint system
	$(BIN)/python -m pytest -n 3 -rs

# NO_MKDOCS_2_WARNING: mkdocs is pinned below 2. MOTET_RUN_NOTEBOOKS: show what the notebooks print and draw.
docs: setup
	MOTET_RUN_NOTEBOOKS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Not part of the tests: a fuzzer finds more the longer it runs. A target that fails leaves a file crash-… here.
SECONDS_EACH ?= 300
fuzz: setup
	$(PIP) -e '.[fuzz]'
	for target in decoder assembler connections own_files corpora; do PYTHONPATH=src $(BIN)/python -m tests.fuzz $$target $(SECONDS_EACH) || exit 1; done

# The tools have an environment of their own, so that they are not in the list.
TOOLS := .venv/supply-chain/bin
$(TOOLS)/ready:
	$(PYTHON) -m venv .venv/supply-chain
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check $(UV) cyclonedx-bom==7.5.0
	touch $@

# The hashes are those of the public index, whatever index is configured here.
lock: $(TOOLS)/ready
	$(TOOLS)/uv --no-config pip compile pyproject.toml --extra dev --constraints constraints.txt --universal --python-version 3.11.7 \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock

sbom: setup $(TOOLS)/ready
	$(TOOLS)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible --of JSON -o sbom.cdx.json

clean:
	rm -rf .venv .mypy_cache .ruff_cache site sbom.cdx.json
