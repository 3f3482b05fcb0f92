# The one list of commands. Each makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint format bench bench-scale bench-gpu campaign docs site dist clean

demo: $(VENV)/.user
	$(BIN)/metaprior reproduce step --out demo --methods \
		"vanilla,learned kernel,learned mean,learned both,fpca,bayes limit,linear limit"

test: lint
	$(BIN)/pytest -rs -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/bandit -q -c pyproject.toml -r src

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/evidence.py

bench-scale: $(VENV)/.dev
	$(BIN)/python benchmarks/scale.py

bench-gpu: $(VENV)/.dev
	$(BIN)/python benchmarks/gpu.py

campaign: $(VENV)/.dev
	$(BIN)/python -m campaign $(if $(FULL),--full --out docs/results/campaign --page docs/trust.md)

docs: $(VENV)/.dev
	$(BIN)/python docs/sketches.py
	$(BIN)/python docs/live.py
	$(BIN)/python docs/refresh.py

site: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs out/site
	$(BIN)/python docs/site_parts/links.py out/site

# builds, checks, and tries the wheel in a fresh environment of each Python that can be had
PYTHONS ?= python3.11 python3.12 python3.13
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build -q
	$(BIN)/twine check --strict dist/*
	.ci/try-wheel dist/*.whl $(PYTHONS)

clean:
	rm -rf $(VENV) demo out dist docs/api docs/gallery

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.user

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/.dist: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dist]'
	touch $@
