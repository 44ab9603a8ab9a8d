# The whole vocabulary: make demo[-animals|-preferences], serve-demo, test, quick, fix, bench, soak, lock, audit, clean. CI runs `make test` and nothing else.
PY := .venv/bin/python
SHELL := /bin/sh
# Processes that tests start, and those that share their work, read modules that have been compiled once.
export PYTHONDONTWRITEBYTECODE :=
# Beside the types, which one processor is enough for: reads all tests, so that they and all modules have been compiled
# once, and runs one that compiles many loops.
AHEAD := -m pytest -q -p no:xdist -m "not spark and not server and not slow" -k test_exact_never_lies tests
# A verdict on a change: all cases that are text, and the law on small samples.
QUICK := tests/test_scripts.py tests/test_plain_sql.py tests/test_property.py tests/algebra/test_rules.py \
	tests/algebra/test_rules_sound.py tests/test_live_law.py tests/test_architecture.py
# What differs from main, committed or not, among the files of a pattern.
changed = $(shell git diff --name-only --diff-filter=d $$(git merge-base HEAD main 2>/dev/null) -- $(1); \
	git ls-files --others --exclude-standard -- $(1))
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-animals demo-preferences serve-demo test quick fix bench soak lock audit clean

help:
	@echo "make demo   run seven continuous queries over the flights of 2013 on Spark"
	@echo "make demo-animals   run the queries of CSQL's paper over made-up animal sensors: FREQUENCY, and what it means where"
	@echo "make demo-preferences   a burst of orders that is too much to join: alerts of the largest first, share done and delay"
	@echo "make serve-demo   a server: queries are registered with curl while flights stream, then it is killed and started again"
	@echo "make test   lint, types, architecture and all tests"
	@echo "make quick  a verdict on a change in 3 minutes: lint, types and tests of what differs from main, the cases that are text, the law on small samples"
	@echo "make fix    format and repair what the linter can"
	@echo "make bench  measure against Spark's own DataFrame API (for less: BENCH='--rows 1000000' STANDING='--counts 1 10')"
	@echo "make soak   the long tests: many random cases, kill and restart; then half an hour of kills (SOAK_RUN='--minutes 5'),"
	@echo "            and an hour of a server under commands, subscribers and kills (LIVE_SOAK='--minutes 5')"
	@echo "make lock   resolve the dependencies anew"
	@echo "make audit  look for known vulnerabilities in the locked dependencies"
	@echo "make clean  remove what the other commands made, the virtual environment too"

setup:
	@sh scripts/setup.sh

demo: setup
	@$(PY) examples/demo.py $(DEMO)

demo-animals: setup
	@$(PY) examples/demo.py animals $(DEMO)

demo-preferences: setup
	@$(PY) examples/preferences_demo.py $(DEMO)

serve-demo: setup
	@$(PY) examples/serve_demo.py $(DEMO)

test: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	@$(PY) $(AHEAD) >/dev/null 2>&1 & echo '$(PY) -m mypy --strict src'; $(PY) -m mypy --strict src; found=$$?; wait; exit $$found
	$(PY) -m pytest -q -n 2 --dist worksteal -m "not spark and not server and not slow" tests
	$(PY) -m pytest -q -n 3 --dist worksteal -m "server and not spark and not slow" tests
	$(PY) -m pytest -q -n 2 --dist worksteal -m "spark and not slow" tests

quick: setup
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(if $(call changed,'src/*.py'),$(PY) -m mypy --strict $(call changed,'src/*.py'))
	$(PY) -m pytest -q -n 2 --dist worksteal -m "not spark and not server and not slow" \
		$(QUICK) $(filter-out $(QUICK),$(call changed,'tests/**test_*.py'))

fix: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: setup
	$(PY) -m benchmarks.run $(BENCH)
	$(PY) -m benchmarks.standing $(STANDING)
	$(PY) -m benchmarks.floors $(FLOORS)

soak: setup
	$(PY) -m pytest -q -p no:xdist -m slow --timeout 7200 tests $(SOAK)
	$(PY) -m benchmarks.soak $(SOAK_RUN)
	$(PY) -m benchmarks.live_soak $(LIVE_SOAK)

lock:
	sh scripts/lock.sh $(LOCK)

audit:
	sh scripts/audit.sh $(AUDIT)

clean:
	rm -rf .venv build dist demo-results spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/data src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
