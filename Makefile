# The commands people type. `make` alone lists them. Everything is kept in .venv and .services.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv services demo test long campaign bench lint site clean

PYTHON := .venv/bin/python
READY := .venv/.ready

# Tests start imgtool thousands of times; without bytecode, each start compiles it and its libraries again.
unexport PYTHONDONTWRITEBYTECODE

help:  ## List the commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

venv: $(READY)  ## Make .venv with imgtool and what its tests need

$(READY): pyproject.toml scripts/venv
	@scripts/venv .venv

services:  ## Start a Docker Engine if none answers, a registry, stand-in base images
	@scripts/services up

demo: $(READY)  ## Build an example's images, push them to a local registry, write their job file (FRAMEWORK=jax or torch)
	@$(PYTHON) scripts/demo $(FRAMEWORK)

test: $(READY)  ## Everything that must pass: ruff, mypy, all tests (about ten minutes on two cores)
	@$(PYTHON) scripts/check

long: $(READY)  ## The tests that take minutes each, of which `make test` runs a sample
	@$(PYTHON) scripts/check long

campaign: $(READY)  ## All cases of which `make long` runs a sample: hours (FILES="tests/…" for some)
	@$(PYTHON) scripts/check campaign $(FILES)

lint: $(READY)  ## ruff and mypy alone
	@$(PYTHON) scripts/check lint

bench: $(READY)  ## Measure against other builders, into bench/RESULTS.md
	@scripts/services up
	@eval "$$(scripts/services env)" && $(PYTHON) -m bench

site: $(READY)  ## The documentation as a site, in site/
	@.venv/bin/uv pip install --quiet --python $(PYTHON) --group site
	@$(PYTHON) -m mkdocs build --quiet

clean:  ## Stop the services and remove .venv, .services and what was built
	@scripts/services down
	@rm -rf .venv .services .mypy_cache .ruff_cache .pytest_cache dist build demo site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
