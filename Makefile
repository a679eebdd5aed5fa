# `make demo` and `make test` set everything up by themselves. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
MARKED ?= not slow or quick
ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready
GOLDEN_VENV := $(VENV)-golden
GOLDEN_READY := $(GOLDEN_VENV)/.ready
# Python keeps what it has compiled, also where the environment says not to: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint types fmt pytest docs golden bench gallery exhibits checkpoints models clients reliability versions tritons release-check clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-13s %s\n' "$$name" "$$text"; done
	@echo "Variables: PYTHON=$(PYTHON)  VENV=$(VENV)  WORKERS=$(WORKERS)  ARGS= (given to dat demo, pytest or the benchmark)"

setup: $(READY) ## Make the virtual environment, or bring it up to date

demo: $(READY) ## Train the Dual Attention Transformer beside a Transformer, a few minutes
	$(BIN)/dat demo $(ARGS)

test: lint ## Run the checks that every change must pass: lint, format, types, all tests but the slow ones
	@$(MAKE) --no-print-directory -j2 types pytest

test-all: ## Run the same with the slow tests, which start many processes, compile, or sweep pages
	@$(MAKE) --no-print-directory test MARKED=

lint: $(READY) ## Check style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## Check types, on the pages too
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		$(BIN)/python -m tests.support.documents build/pages && $(BIN)/basedpyright --pythonpath $(BIN)/python; \
	else echo "types: not checked on Python 3.10, for which packages have older types and Sphinx none"; fi

fmt: $(READY) ## Repair style and format
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

pytest: $(READY) ## Run the tests alone; ARGS="tests/test_imports.py -x" narrows them, MARKED=slow takes the slow ones
	@$(BIN)/python -m tests.support.chromium
	@$(BIN)/python -m tests.support.page_tools
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(MARKED)" $(ARGS)

docs: $(READY) ## Build the site of these pages and of the reference into build/site (Python >= 3.11), without network
	rm -rf build/site build/doctrees docs/reference
	env OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --quiet --fail-on-warning -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

golden: $(GOLDEN_READY) ## Remake the golden files from the published package, in an environment of its own
	env -u PYTHONPATH $(GOLDEN_VENV)/bin/python tests/golden/make_golden.py $(ARGS)
	env -u PYTHONPATH $(GOLDEN_VENV)/bin/python tests/golden/make_signatures.py
	env -u PYTHONPATH $(GOLDEN_VENV)/bin/python tests/golden/hub/make_hub.py

bench: $(READY) $(GOLDEN_READY) ## Time this library beside the published package; ARGS="--suite step --lengths 1024"
	$(BIN)/python benchmarks/run.py --published $(GOLDEN_VENV)/bin/python $(ARGS)

gallery: $(READY) ## Draw the pictures of the pages under docs/
	$(BIN)/python docs/make_gallery.py $(ARGS)

exhibits: $(READY) ## Write the exhibits of docs/exhibits.md into build/exhibits, each one file for any browser
	env OMP_NUM_THREADS=1 $(BIN)/python docs/make_exhibits.py --out build/exhibits

checkpoints: $(READY) ## Train three pairs of DAT and Transformer for a release into build/checkpoints, 50 minutes of a core
	env OMP_NUM_THREADS=1 $(BIN)/python docs/make_checkpoints.py --out build/checkpoints $(ARGS)

models: $(READY) ## Try what every mechanism and model takes and has, six minutes, and write docs/models.md
	env OMP_NUM_THREADS=1 $(BIN)/python docs/make_models.py

clients: ## Try tools of others on our models, each in its newest version, an hour, and renew docs/clients.md; ARGS=timm: one
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip install --quiet -e '.[dev]'
	$(VENV)-clients/bin/python -m pip install --quiet $$($(VENV)-clients/bin/python -c 'from docs.clients import PACKAGES; print(*PACKAGES)')
	env OMP_NUM_THREADS=1 $(VENV)-clients/bin/python -m docs.clients $(ARGS)

reliability: $(READY) ## Try kills, damaged files, wrong settings and calls, four minutes; ARGS="--kills 200": trainings in several processes
	env OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reliability $(ARGS)

versions: ## Run the tests with the lowest versions of what we build on, and with the newest; ARGS=lowest: one of them
	$(PYTHON) -m tests.versions --workers $(WORKERS) $(ARGS)

tritons: $(READY) ## Read our kernels' machine code, as each Triton that recent PyTorchs bring makes it, two minutes
	@for version in 3.6.0 3.7.1 3.8.0; do \
		$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/tritons/$$version triton==$$version || exit 1; done
	$(BIN)/python -m pytest tests/library/functional/test_triton_compiles.py -m "" -k machine_code $(ARGS)

release-check: $(READY) ## Build wheel and sdist into dist/, install each in new environments, and try them
	$(BIN)/python -m tests.release $(ARGS)

clean: ## Remove caches and build products; environments and runs stay
	rm -rf build dist docs/reference .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)*' -prune -exec rm -rf {} +

# The environment is reused until pyproject.toml or constraints.txt changes. One that came along when the checkout was
# moved or copied, or whose interpreter has gone, is of no use (its paths are absolute) and is made anew.
MADE_FOR := $(shell cat $(READY) 2>/dev/null)
ifneq ($(MADE_FOR),)
ifneq ($(MADE_FOR) $(shell $(BIN)/python -c 'print("runs")' 2>/dev/null),$(CURDIR) runs)
STALE := --clear
.PHONY: $(READY)
endif
endif

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "$(PYTHON) is older than Python 3.10; name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (about a minute) ..."
	@test -z '$(STALE)' -o ! -L $(VENV) || rm $(VENV)  # whatever a link leads to is another checkout's
	@test -z '$(STALE)' -a -x $(BIN)/pip || $(PYTHON) -m venv $(STALE) $(VENV)
	@$(BIN)/python $(PIP_INSTALL) --upgrade pip  # an older one takes twice as long
	@$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	@echo '$(CURDIR)' > $@

$(GOLDEN_READY): constraints.txt
	@echo "Setting up $(GOLDEN_VENV) ..."
	@test -x $(GOLDEN_VENV)/bin/pip || $(PYTHON) -m venv $(GOLDEN_VENV)
	@$(GOLDEN_VENV)/bin/python $(PIP_INSTALL) torch einops numpy safetensors huggingface-hub
	@$(GOLDEN_VENV)/bin/python $(PIP_INSTALL) --no-deps dual-attention==0.0.7
	@touch $@
