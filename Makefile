# Everything here makes the environment it needs on first use and reuses it afterwards.
PYTHON ?= python3
SEEDS ?= 0 1 2

BIN := .venv/bin
READY := .venv/.ready
EXERCISE := .venv-exercise

.PHONY: long thorough help setup demo test check slow mutate bench exercise

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile

setup: $(READY)  ## make the environment .venv

demo: $(READY)  ## train a real model to add, in minutes
	$(BIN)/verigrad train examples/addition.toml

test: $(READY)  ## the tests, without those on the real model
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(READY)  ## style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(READY)  ## the tests on the real model; minutes
	$(BIN)/python -m pytest -m slow

thorough: $(READY)  ## tests that would make the default ones slow; a minute or two
	$(BIN)/python -m pytest -n auto --dist loadfile -m thorough

mutate: $(READY)  ## plant known mistakes, and see a test turn red for each; minutes
	$(BIN)/python tools/mutate.py

long: $(READY)  ## the tests that take thousands of calls; minutes
	$(BIN)/python -m pytest -m long

bench: $(READY)  ## every benchmark, that of learning for each of SEEDS; hours
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[bench,study]"
	set -e; for seed in $(SEEDS); do $(BIN)/python benchmarks/addition.py --seed $$seed; done
	$(BIN)/python benchmarks/sandbox.py --seed 0
	$(BIN)/python benchmarks/preflight.py
	$(BIN)/python benchmarks/head.py --seed 0
	$(BIN)/python benchmarks/scaling.py --seed 0
	$(BIN)/python benchmarks/decode.py --seed 0
	$(BIN)/python benchmarks/neighbours.py --seed 0
	$(BIN)/python benchmarks/limit.py --seed 0
	$(BIN)/python benchmarks/compiled.py --seed 0
	$(BIN)/python benchmarks/peer.py --seed 0

exercise: $(EXERCISE)/.ready  ## grade the exercise's solution, and its empty starter
	$(EXERCISE)/bin/python -m pytest exercises/15-grpo-rlvr --impl solution
	$(EXERCISE)/bin/python tools/check_starter.py exercises/15-grpo-rlvr

$(READY): pyproject.toml constraints.txt tools/setup.py
	$(PYTHON) tools/setup.py
	@touch $@

$(EXERCISE)/.ready: exercises/requirements.txt
	$(PYTHON) -m venv $(EXERCISE)
	$(EXERCISE)/bin/python -m pip install -r exercises/requirements.txt
	@touch $@
