# Everything a newcomer types. `make demo` and `make test` set up the environment themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINE ?= flink
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --durations 15
FAST := not slow and not trial and not cluster and not infra and not ray and not mlflow and not dagster and not browser and not java and not build and not network and not trains

# Empty: processes keep the byte code of what they import, for the many that come after them.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo up cluster posts live test test-fast trials test-cluster kubernetes test-infra
.PHONY: format lint types contracts docs check golden bench gpu picture clean

setup: $(READY)

# A Python that is named makes the environment anew where another one made it; `python3` by default takes what is there.
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
	@command -v nvidia-smi >/dev/null || echo "no NVIDIA GPU here: CONTRIBUTING.md says how to take PyTorch's build for CPUs, 4 GB less"
	@echo "1/2 an environment of $(PYTHON)"
	$(PYTHON) -m venv $(CLEAR) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@echo "2/2 packages, as pinned in constraints.txt; nothing is printed meanwhile"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable ".[all]" --group dev
	@touch $(READY)

demo: $(READY)
	@$(BIN)/multilink demo --workspace demo

up: $(READY)
	@$(BIN)/multilink up --workspace workspace

cluster: $(READY)
	@PYTHONPATH=tests $(BIN)/python -m cluster.local --home cluster --engine $(ENGINE)

posts: $(READY)
	@$(BIN)/python tests/replay/add_posts.py --web workspace/web

live: $(READY)
	@$(BIN)/python tests/orchestration/live.py

test: $(READY)
	$(PYTEST)

test-fast: $(READY)
	$(BIN)/python -m pytest --numprocesses 3 -m "$(FAST)"

kubernetes:
	@infra/kubernetes/build.sh

trials: $(READY)
	$(BIN)/python -m pytest -m trial --numprocesses 2 --verbose

test-infra: $(READY)
	$(BIN)/python -m pytest tests/infra -m infra --verbose

test-cluster: $(READY)
	$(BIN)/python -m pytest tests/cluster -m cluster --verbose

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

check: format lint types contracts docs test

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo build/docs/index.html

golden: $(READY)
	$(BIN)/python -m pytest tests/golden --refresh-golden

bench: $(READY)
	@set -e; for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) --json; done

gpu: $(READY)
	$(BIN)/python -m pytest tests/training/loop/test_distributed.py -k "gpu or nccl" --numprocesses 0 --verbose

picture: demo
	$(BIN)/multilink demo --news --workspace demo
	$(BIN)/python docs/take_pictures.py demo

clean:
	rm -rf demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build *.egg-info
