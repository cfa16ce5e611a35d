# Everything a clone needs: `make run` and `make test` set a fresh machine up by themselves.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SIMULATOR := .venv/.simulator
STAMP := .venv/.installed
LAB := .venv/.notebooks
TORCH := torch==2.13.0
INSTALL := -m pip install --quiet --disable-pip-version-check
OFFLINE := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1

$(SIMULATOR): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) --editable .
	touch $@

$(STAMP): $(SIMULATOR)
	$(BIN)/python $(INSTALL) $(TORCH) --editable '.[dev]'
	touch $@

$(LAB): $(STAMP)
	$(BIN)/python $(INSTALL) --editable '.[notebooks]'
	touch $@

AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)
DEMO := runs/demo
PROFILE := --set profile=../$(DEMO)/tiny.json

.PHONY: setup run demo test check bench bench-live bench-sweep bench-fidelity notebooks help
setup: $(STAMP) ## make .venv with everything the tests need (quick the second time)

run: $(SIMULATOR) ## simulate scenarios/bursty_images.yaml and draw its plots
	$(BIN)/tandem run scenarios/bursty_images.yaml

demo: setup ## calibrate, fit, run, replay and compare a tiny model on this CPU
	$(OFFLINE) $(BIN)/tandem calibrate --model tiny --quick --out $(DEMO)/tiny.csv
	$(BIN)/tandem fit $(DEMO)/tiny.csv
	$(BIN)/tandem run scenarios/tiny_live.yaml $(PROFILE) --out $(DEMO)/simulated
	$(OFFLINE) $(BIN)/tandem replay scenarios/tiny_live.yaml $(PROFILE) --clock thread_time --out $(DEMO)/live
	$(BIN)/tandem compare $(DEMO)/simulated $(DEMO)/live

notebooks: $(LAB) ## open the notebooks in Jupyter Lab
	$(BIN)/jupyter lab $(AS_ROOT) --ServerApp.root_dir=$(CURDIR) --LabApp.default_url=/lab/tree/notebooks/01_first_run.ipynb

check: setup ## format, lint, types and import arrows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## check, then all tests, offline
	$(OFFLINE) $(BIN)/python -m pytest -n 2

bench: setup ## speed and memory, one JSON line a workload
	$(OFFLINE) $(BIN)/python benchmarks/simulate.py

bench-live: setup ## speed of the live half beside transformers' own, one JSON line a workload
	$(OFFLINE) $(BIN)/python benchmarks/live.py

bench-sweep: setup ## speed of a sweep on one process, on two and on a Dask cluster, one JSON line a way
	$(OFFLINE) $(BIN)/python benchmarks/sweep.py

bench-fidelity: setup ## how true a simulation is on this CPU, three times calibrate, fit, run, replay and compare
	$(OFFLINE) $(BIN)/python benchmarks/fidelity.py

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile
