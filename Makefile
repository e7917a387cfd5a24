# `make check` is what continuous integration asks of a change, less the fresh environment.
PYTHON ?= python

.PHONY: check format lint types layers test smoke plot gallery

check: lint types layers test

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

layers:
	lint-imports

test:
	$(PYTHON) -m pytest -n auto

smoke:
	$(PYTHON) -m evo.run experiments/smoke.toml

# The picture at the top of the README, from the archive that comes with evo.
plot:
	$(PYTHON) -m evo plot nm24-07fb --archive archive.db --out docs/images --name nm24 --format png --format pdf

# The pictures of docs/gallery.md, from the archive that comes with evo.
gallery:
	$(PYTHON) -m evo plot nm24-07fb --kind all --archive archive.db --out docs/images/gallery --format png
