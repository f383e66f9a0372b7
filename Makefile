# Everything a newcomer types. `make demo` and `make test` set up the environment themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINE ?= flink
READY := $(VENV)/.ready
# In two steps, so that the wheels of PyTorch are gone from the disk before the others come.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --durations 15
FAST := not slow and not trial and not cluster and not infra and not ray and not mlflow and not dagster and not browser and not java and not build and not network and not trains

# Empty: processes keep the byte code of what they import, for the many that come after them.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup help demo up cluster posts test test-fast trials test-cluster kubernetes test-infra
.PHONY: format lint types contracts docs check golden bench gpu picture clean

setup: $(READY) ## make the virtual environment .venv

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s%s\n", $$1, $$2}' Makefile

# If PYTHON is set and another Python made the environment, it is made again; the default `python3` keeps what exists.
ifneq ($(origin PYTHON),file)
ifneq ($(wildcard $(VENV)/pyvenv.cfg),)
ifneq ($(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),$(shell sed -n 's/^version = \([0-9]*[.][0-9]*\).*/\1/p' $(VENV)/pyvenv.cfg))
.PHONY: $(READY)
CLEAR := --clear
endif
endif
endif

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) \
	    else "multilink needs Python 3.11 to 3.13, and $(PYTHON) is %d.%d: make setup PYTHON=python3.12" % v)'
	@echo "setting up $(VENV): three minutes or more, and about 9 GB, most of it PyTorch's libraries for GPUs"
	@command -v nvidia-smi >/dev/null || echo "no NVIDIA GPU here: CONTRIBUTING.md describes PyTorch's build for CPUs, 4 GB less"
	@echo "1/3 an environment of $(PYTHON)"
	$(PYTHON) -m venv $(CLEAR) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@echo "2/3 PyTorch, as pinned in constraints.txt; nothing is printed meanwhile"
	PYTHONWARNINGS=ignore $(INSTALL) torch torchvision
	@echo "3/3 all other packages"
	PYTHONWARNINGS=ignore $(INSTALL) --editable ".[all]" --group dev
	@touch $(READY)

demo: $(READY) ## run the main job on a recorded web
	@$(BIN)/multilink demo --workspace demo

up: $(READY) ## start Dagster, MLflow and the pages on this machine
	@$(BIN)/multilink up --workspace workspace

cluster: $(READY) ## start a cluster on this machine (ENGINE=flink or spark)
	@PYTHONPATH=tests $(BIN)/python -m cluster.local --home cluster --engine $(ENGINE)

posts: $(READY) ## add twenty recorded posts for the next rebuild of `make up`
	@$(BIN)/python tests/replay/add_posts.py --web workspace/web

test: $(READY) ## run all tests but the trials
	$(PYTEST)

test-fast: $(READY) ## run the tests that take minutes
	$(BIN)/python -m pytest --numprocesses 3 -m "$(FAST)"

kubernetes: ## build the programs of `make test-infra`
	@infra/kubernetes/build.sh

trials: $(READY) ## run the long tests
	$(BIN)/python -m pytest -m trial --numprocesses 2 --verbose

test-infra: $(READY) ## check chart, manifests and image
	$(BIN)/python -m pytest tests/infra -m infra --verbose

test-cluster: $(READY) ## run the main job on a cluster on this machine
	$(BIN)/python -m pytest tests/cluster -m cluster --verbose

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

check: format lint types contracts docs test ## run everything that a change has to pass

docs: $(READY) ## build the guide in build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo build/docs/index.html

golden: $(READY) ## write the golden files again
	$(BIN)/python -m pytest tests/golden --refresh-golden

bench: $(READY) ## run the benchmarks
	@set -e; for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) --json; done

gpu: $(READY) ## run the tests that need a GPU
	$(BIN)/python -m pytest tests/training/loop/test_distributed.py -k "gpu or nccl" --numprocesses 0 --verbose

picture: demo ## draw the pictures of README and guide
	$(BIN)/multilink demo --news --workspace demo
	$(BIN)/python docs/take_pictures.py demo

clean: ## remove the demo, caches and builds
	rm -rf demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build *.egg-info
