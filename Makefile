# make compare   set up, and compare the methods on the built-in data
# make reproduce run the papers' experiments (QUICK=1: fewer repeats, under an hour)
# make quick     style, types and the tests of core, models and house rules: the loop to work in
# make test      set up, and run the tests
# make test-all  the slow ones as well
# make lint      style, types, and counts of lines and names beside their limits
# make docs      build the documentation to site/ (OUTPUTS=1: with what the examples print, which takes half an hour)
# make dist      the source archive and the wheel, in dist/
# make publish-docs  one version of the documentation, to the branch gh-pages (VERSION=dev, or VERSION=0.1 ALIAS=latest)
# make lowest    the tests of the package on the lowest versions that pyproject.toml allows (PYTHON=python3.12)
# make newest    the same on the newest ones (PRE=1: pre-releases)
# make integrations  the tests of another library with this one, in an environment of its own (EXTRA=botorch or skpro)
# make clean     remove what these make (clean-cache: compiled code alone)

STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs
PYTHONS := python3.14 python3.13 python3.12 python3 python \
  $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/*/bin/python3)
# The bytecode of package and tests is made once for all processes.
unexport PYTHONDONTWRITEBYTECODE
# Two processes, each with one thread: more threads than processors wait for one another. A file goes to one of them,
# since its fixtures and compiled models are shared; the longest go first (tests/conftest.py).
PYTEST := OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# The fast tests evaluate PyMC's graphs without compiling them, except where a test chooses a back end, nor single
# operations of them by a C compiler (cxx=), and do not keep where each graph was written; all tests together do so.
FAST := PYTENSOR_FLAGS=mode=FAST_COMPILE,traceback__limit=0,cxx= $(PYTEST) -m "not slow"
QUICK_TESTS := tests/test_imports.py tests/test_bad_input.py tests/losses/test_noise.py tests/losses/test_pieces.py \
  tests/model/test_gp.py tests/model/test_problem.py tests/model/test_priors.py tests/test_datasets.py tests/approximations tests/inference/test_fit.py \
  tests/inference/test_predict.py

# Environments of other versions, beside .venv.
PYTHON ?= python3
OTHER := build/other-versions
TEST_TOOLS := cvxopt hypothesis mpmath pytest pytest-xdist
PACKAGE_TESTS := tests/losses tests/approximations tests/model tests/inference tests/estimators

.PHONY: compare reproduce quick test test-all lint docs dist publish-docs lowest newest integrations clean clean-cache setup

compare: $(STAMP)
	.venv/bin/bsvr-pp compare

reproduce: $(STAMP)
	.venv/bin/python models/reproduce.py $(if $(QUICK),--quick)

quick: lint
	$(FAST) $(QUICK_TESTS)

test: $(STAMP)
	$(FAST)

test-all: $(STAMP)
	$(PYTEST)

lint: $(STAMP)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/python packaging/counts.py

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 BSVR_PP_OUTPUTS=$(OUTPUTS) .venv/bin/python -m mkdocs build --strict

dist: $(STAMP)
	.venv/bin/python -m build

publish-docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 BSVR_PP_OUTPUTS=1 .venv/bin/mike deploy --push $(if $(ALIAS),--update-aliases) $(or $(VERSION),dev) $(ALIAS)

lowest:
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --requirement constraints-lowest.txt --editable . $(TEST_TOOLS)
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -n 2 -m "not slow" $(PACKAGE_TESTS)

newest:
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --upgrade $(if $(PRE),--pre) --editable . $(TEST_TOOLS)
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -n 2 -m "not slow" $(PACKAGE_TESTS)

integrations:
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --editable ".[$(EXTRA)]" $(TEST_TOOLS) pyyaml $(if $(filter skpro,$(EXTRA)),sktime)
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest tests/integrations bsvr_pp/integrations tests/test_docs.py -k $(EXTRA)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@found=; \
	for python in $(PYTHONS); do \
	  if $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then \
	    found=$$python; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "bsvr-pp needs Python 3.12 or later, and none was found (looked for: python3.14, python3.13, python3.12, python3, pyenv's versions)." >&2; \
	  echo "Install one and run make again." >&2; \
	  exit 2; \
	fi; \
	echo "Setting up .venv with $$($$found --version)"; \
	$$found -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,large]"
	@touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	@touch $(DOCS_STAMP)

clean: clean-cache
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis bsvr-pp-comparison bsvr-pp-reproduction

clean-cache:
	find bsvr_pp tests -name __pycache__ -type d -prune -exec rm -rf {} +
