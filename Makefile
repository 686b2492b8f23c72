# Every target builds what it needs; see CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := $(or $(ANTIPHON_CACHE_DIR),$(HOME)/.cache/antiphon)
STUBS := antiphon/v1
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: venv demo model test lint type gen gen-check sim bench bench-peers clean

venv: $(VENV)/.host

$(VENV)/.host: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and the rest (a few minutes the first time)"
	$(PIP) -c constraints.txt torch==2.13.0
	$(PIP) -c constraints.txt -e '.[host]'
	@touch $@

$(VENV)/.test: $(VENV)/.host
	$(PIP) -c constraints.txt -e '.[host,test,dev,bench]'
	@touch $@

model: venv
	$(BIN)/antiphon model pull

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

test: $(VENV)/.test model
	$(MAKE) lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

sim: $(VENV)/.test
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000)

bench: $(VENV)/.test model
	$(BIN)/python -m bench

bench-peers: $(VENV)/.test
	$(PIP) -c constraints.txt transformers accelerate llama-cpp-python

clean:
	rm -rf $(VENV) build *.egg-info
