# What a reader and a developer need, each as one word; 'make' alone lists them.
#
# The environment goes into .venv, made from requirements.lock; an active conda environment named provlab (made from
# environment.yml) is used as it is. On Linux the default PyTorch wheel brings several GB of CUDA libraries; without
# a GPU take the small one:
#   make reproduce PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PROFILE ?= default
PYTEST_ARGS ?= -n auto
# DRAW=3 draws the whole world again: the zoo's weights and every seed of the notebooks; 0 is the published study.
DRAW ?= $(or $(PROVLAB_DRAW),0)
override DRAW := $(or $(strip $(DRAW)),0)
ifneq ($(shell [[ "$(DRAW)" =~ ^(0|[1-9][0-9]{0,3})$$ ]] && echo one),one)
$(error DRAW is a whole number from 0 to 9999 without zeros before it, not '$(DRAW)')
endif
OF_DRAW := $(patsubst %,-draw-%,$(filter-out 0,$(DRAW)))
# below the folder of results, as provlab.provenance.results_root has it
OF_WORLD := $(patsubst -%,/%,$(OF_DRAW))
# one folder for each profile and draw, so that a smoke run never overwrites the book of the default one
BUILD := _build/$(PROFILE)$(OF_DRAW)
BOOK := _build/html$(OF_DRAW)
PLAN := notebooks/profiles/$(PROFILE).yml

# a book about a reader's own models is bound whatever a check says of its pages, which is shown
OWN := $(shell grep -s '^title:' $(PLAN))
UNLESS_OWN := $(if $(OWN),|| true)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PROVLAB_DRAW := $(DRAW)
# small models gain nothing from threads, and sums come out the same whatever else the machine does
ifneq ($(PROFILE),paper)
export OMP_NUM_THREADS ?= 1
endif
ifdef PIP_EXTRA_INDEX_URL
export PIP_EXTRA_INDEX_URL
endif

ifeq ($(CONDA_DEFAULT_ENV),provlab)
READY :=
BIN := $(CONDA_PREFIX)/bin
else
READY := .venv/.ready
BIN := .venv/bin
endif

.PHONY: help env reproduce notebooks pages preview book pdf course pictures rehearsal lab test lint types unit sweep bench lock clean FORCE

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  PROFILE=smoke      minutes; =default the study; =paper the papers' own models (asks before it fetches)"
	@echo "  PROFILE=mine       a book about your own models, of the profile that 'provlab book A B C' writes"
	@echo "  DRAW=3             the same study on another world: zoo and seeds drawn again (0 to 9999; 0: the published one)"
	@echo "  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu    PyTorch without CUDA, several GB smaller"

env: $(READY) ## make .venv from requirements.lock (a conda environment named provlab is used as it is)

# pip would compile all modules, for a minute: those that commands and notebooks import are compiled by importing them
# once, also where PYTHONDONTWRITEBYTECODE is set, as in many containers; each command would compile them again there.
# It goes on beside the project's own installing, and ends with make.
IMPORTED := torch, transformers.models.llama.modeling_llama, transformers.generation, peft, matplotlib.pyplot, seaborn, \
    pandas, numba, scipy.optimize, scipy.stats, papermill, nbclient, ipykernel.kernelapp
# .installing marks a set-up that has begun: found at the start, it was interrupted and is begun again from nothing.
.venv/.ready: requirements.lock pyproject.toml src/provlab_study/pyproject.toml
	@python=$$(for name in python3.11 python3; do \
	    if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done); \
	if [ -z "$$python" ]; then echo "make: Python 3.11 or later is needed: neither python3.11 nor python3 is one" >&2; exit 1; fi; \
	$$python -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "make: $$python cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }; \
	clear=; if [ -e .venv/.installing ] || ! { [ ! -e .venv ] || .venv/bin/python -m pip --version >/dev/null 2>&1; }; then \
	    echo "the last set-up of .venv was interrupted; beginning again"; clear=--clear; fi; \
	if [ -n "$$clear" ] || [ ! -e .venv ]; then mkdir -p .venv; touch .venv/.installing; $$python -m venv $$clear .venv; fi; \
	touch .venv/.installing; echo "installing into .venv what requirements.lock names: minutes the first time"; \
	.venv/bin/python -m pip install --quiet --no-input --no-compile -r requirements.lock; \
	PYTHONDONTWRITEBYTECODE= .venv/bin/python -W ignore -c 'import $(IMPORTED)' > /dev/null 2>&1 & \
	trap 'kill $$! 2>/dev/null || true' EXIT; \
	.venv/bin/python -m pip install --quiet --no-input --no-deps -e . -e src/provlab_study; wait; trap - EXIT; \
	rm -f .venv/.installing; touch $@

reproduce: env ## the whole study of PROFILE: zoo, notebooks, claims, book in _build/html; its first chapters in minutes
	@rm -rf $(BUILD)/_build
	@$(MAKE) --no-print-directory pages BETWEEN="$(BIN)/python book/preview.py $(BUILD) $(BOOK)" || { status=$$?; \
	if [ -f $(BUILD)/_build/html/index.html ]; then rm -rf $(BOOK) && cp -R $(BUILD)/_build/html $(BOOK) && \
	echo "the book, with what is said above of it: $(CURDIR)/$(BOOK)/index.html"; fi; exit $$status; }
	@rm -rf $(BUILD)/.html && cp -R $(BUILD)/html $(BUILD)/.html && rm -rf $(BOOK) && mv $(BUILD)/.html $(BOOK)
	@$(if $(OWN),true,$(BIN)/provlab claims)
	@echo; echo "the book: $(CURDIR)/$(BOOK)/index.html"

notebooks: env ## run the notebooks of PROFILE; what is up to date is skipped
	@if [ ! -f $(PLAN) ]; then echo "make: no $(PLAN); PROFILE is smoke, default or paper, or one that provlab book writes" >&2; exit 2; fi
	@mkdir -p $(BUILD)/book/experiments
	@$(BIN)/provlab reproduce $(PLAN) --output $(BUILD)/book/experiments $(if $(YES),--yes) $(if $(BETWEEN),--between "$(BETWEEN)")

preview: env ## build the book of PROFILE as far as it has come, into _build/html
	@$(BIN)/python book/preview.py $(BUILD) $(BOOK)

# the second make sees the notebooks that the first one made
pages: notebooks
	@$(MAKE) --no-print-directory $(BUILD)/html/index.html

book: pages ## build the book of PROFILE, warnings as errors, into _build/PROFILE/html

# book/ and the executed notebooks are put together in the build folder: the book's notebooks must lie below its root
PAGES := $(shell find book -type f -not -path 'book/experiments/*') notebooks/profiles/paper.costs.csv $(filter-out %.failed.ipynb,$(wildcard $(BUILD)/book/experiments/*.ipynb))
$(BUILD)/html/index.html: $(PAGES) _config.yml tests/book/check_html.py tests/book/check_axe.py requirements.lock
	@find $(BUILD)/book -mindepth 1 -maxdepth 1 -not -name experiments -exec rm -rf {} +
	@find book -mindepth 1 -maxdepth 1 -not -name experiments -exec cp -R {} $(BUILD)/book/ \;
	@cp notebooks/profiles/paper.costs.csv $(BUILD)/book/
	@mkdir -p $(BUILD)/book/records && find "$${PROVLAB_RESULTS:-_results}$(OF_WORLD)/$(PROFILE)/experiments" -name '*.json' -exec cp {} $(BUILD)/book/records/ \; 2>/dev/null || true
	@rm -rf $(BUILD)/_build
	@$(BIN)/python book/own_book.py $(PLAN) $(BUILD)
	@$(BIN)/jupyter-book build $(BUILD)/book --config $$(ls $(BUILD)/book/_config.yml 2> /dev/null || echo _config.yml) --path-output $(BUILD) $(if $(OWN),,-W) -n --keep-going --all -q > $(BUILD)/build.log
	@$(BIN)/python tests/book/check_html.py $(BUILD)/_build/html $(UNLESS_OWN)
	@$(BIN)/python tests/book/check_axe.py $(BUILD)/_build/html $(UNLESS_OWN)
	@rm -rf $(BUILD)/html && mv $(BUILD)/_build/html $(BUILD)/html && touch $@

course: env ## what a course hands out (WEEK=3: of one week): assignments, labs, slides, solutions, into _build/course
	@$(BIN)/python book/course/release.py "$(WEEK)"

pdf: env ## the book of PROFILE as one PDF, _build/PROFILE/book.pdf, printed by Chromium
	@$(MAKE) --no-print-directory pages
	@$(BIN)/python book/pdf.py $(BUILD)

pictures: env ## draw the README's pictures from the records of PROFILE
	@$(BIN)/python book/readme_pictures.py $(PROFILE)

rehearsal: env ## the pages of PROFILE=paper against small stand-ins for its models, served on this machine
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/rehearsal/rehearse.py $(if $(WIDTH),--width $(WIDTH))

lab: env ## open copies of the notebooks in JupyterLab, below _lab: what you change and run there leaves the study as it is
	@mkdir -p _lab && cp -Rn notebooks/. _lab/
	@$(BIN)/jupyter lab _lab

test: env ## everything that must hold: lint, types, tests, smoke notebooks, the book with warnings as errors
	@$(MAKE) --no-print-directory lint types unit
	@$(MAKE) --no-print-directory pages PROFILE=smoke

lint: env ## ruff: rules and format; layers of imports, and what commands reach; names that nothing uses
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo > /dev/null || $(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/layers/doors.py
	@$(BIN)/python tests/dead_code/unused.py

types: env ## mypy
	@$(BIN)/mypy

unit: env ## pytest
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

sweep: env ## every class of the table made, compared and reordered, also the rarer ones that 'make unit' only reads
	@$(BIN)/python -m pytest $(PYTEST_ARGS) -m "" tests/reading/test_families.py

bench: env ## the benchmarks, each printing its table
	@for script in benchmarks/*.py; do [ -e "$$script" ] || { echo "no benchmarks yet"; break; }; \
	    echo "== $$script"; $(BIN)/python "$$script"; done

lock: ## write requirements.lock again from pyproject.toml, with the latest versions that fit
	@rm -rf _build/lock && mkdir -p _build && $$(command -v python3.11 || echo python3) -m venv _build/lock
	@_build/lock/bin/python -m pip install --quiet --no-input '.[book,test]' ./src/provlab_study
	@{ echo "# Every package of the environment at the version it was tested with (Python 3.11, Linux)."; \
	   echo "# Made by 'make lock' from pyproject.toml; environment.yml installs the same file."; \
	   _build/lock/bin/python -m pip freeze --exclude provlab --exclude provlab-study | sed -E 's/\+[a-z0-9]+$$//'; } > _build/requirements.lock
	@mv _build/requirements.lock requirements.lock && rm -rf _build/lock build

clean: ## remove what runs have made here; the environment and the trained zoo stay
	rm -rf _build _results .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
