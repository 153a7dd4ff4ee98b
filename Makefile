# `make demo` and `make test` are the two to know; `make help` lists all.

PYTHON ?= $(or $(shell sh requirements/find_python.sh),python3)
PORT ?= 8000
ENGINE ?= cpu
# The two builds of vLLM cannot share an environment.
VENV ?= $(if $(filter gpu,$(ENGINE)),.venv-gpu,.venv)
SET := $(if $(filter gpu,$(ENGINE)),gpu,engine)
BIN := $(VENV)/bin
RUN := $(BIN)/python manage.py
LEARNING_RATE ?=
NODE_PACKAGES := node_modules/.package-lock.json
NEED_NODE = [ -e $(NODE_PACKAGES) ] && command -v node >/dev/null || \
	{ echo "The checks of the pages' scripts need Node.js 18 or newer with npm: install it, then run make again." >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help demo up smoke test test-fast check lint scripts format docs messages bench bench-start bench-fairness bench-engine bench-peers bench-planner bench-profiling bench-web gpu-bench measure proof-learning proof-resume proof-exactness proof-tests proof-live proof-backup proof-conformance proof-faults proof-diagnosis proof-alarms proof-captures proof-verdict proof-security proof-trainers proof-steps proof-plans proof-shapes gpu-check trainer-env install install-dev lock pin-images clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 14

demo: install ## install, start the console, queue the demo run (PORT=8000)
	@exec $(RUN) up --port $(PORT) --demo

up: install ## the same without the demo run (PORT=8000, ENGINE=gpu for CUDA packages)
	@exec $(RUN) up --port $(PORT)

smoke: install ## the demo without a person: exit code 0 only if it learned (LEARNING_RATE=0 to see it fail)
	@exec $(RUN) smoke $(if $(LEARNING_RATE),--set optimizer.learning_rate=$(LEARNING_RATE))

test: install-dev ## everything: check, unit tests, a real run, a browser journey
	@exec $(BIN)/python -m tests.run

test-fast: install-dev ## the checks and all tests that start no engine, no Ray and no browser
	@exec $(BIN)/python -m tests.run --fast

check: install-dev lint scripts ## lint, types and tests of scripts, types, import contracts, Django's own checks and migrations
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(RUN) makemigrations --check --dry-run

lint: install-dev ## ruff, djangofmt, Biome: rules and format of Python, templates and scripts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/djangofmt check templates
	@$(BIN)/djangofmt --check templates
	@$(NEED_NODE)
	@npm run --silent lint

scripts: install-dev ## types of the pages' scripts, and their unit tests in Node's own runner
	@$(NEED_NODE)
	@npm run --silent types
	@npm run --silent test

format: install-dev ## let ruff, djangofmt and Biome change the files
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/djangofmt check --fix --quiet templates
	@$(BIN)/djangofmt --quiet templates
	@$(NEED_NODE)
	@npm run --silent format

docs: install-dev ## write the reference (knobs, rules, diagnosis rules) into build/docs/reference
	@$(BIN)/python -m console.docs_pages build/docs/reference

messages: install-dev ## gather the pages' texts into console/locale, name what has no translation (needs gettext)
	@$(RUN) messages

proof-learning: install-dev ## every algorithm learns, five seeds, and not with a rate of 0, into docs/proofs/learning.md (ONLY=grpo,dpo)
	@exec $(BIN)/python -m tests.proofs.learning $(ONLY)

proof-resume: install-dev ## checkpoints in every layout and drivers killed at seeded moments, into docs/proofs/resume.md
	@exec $(BIN)/python -m tests.proofs.resume

proof-exactness: install-dev ## what ranks, ZeRO stages, layouts and packing may not change of what is learned, into docs/proofs/exactness.md
	@exec $(BIN)/python -m tests.proofs.exactness $(ONLY)

proof-tests: install-dev ## the dear tests that `make test` leaves out, into docs/proofs/dear-tests.md (ONLY=nsys)
	@exec $(BIN)/python -m tests.proofs.dear_tests $(ONLY)

proof-live: install-dev ## the live path under load on SQLite and PostgreSQL, into docs/proofs/live.md
	@exec $(BIN)/python -m tests.proofs.live

proof-backup: install-dev ## backups under load, restored and compared, into docs/proofs/backup.md
	@exec $(BIN)/python -m tests.proofs.backup

proof-conformance: install-dev ## commands for the other trainers against their own code, into docs/proofs/conformance.md
	@exec $(BIN)/python -m tests.proofs.conformance

proof-shapes: install-dev ## what transformers counts of every model type, into tests/jobs/planner/shapes/counts.json
	@$(BIN)/python -m tests.jobs.planner.shapes.write_class_defaults
	@exec $(BIN)/python -m tests.jobs.planner.shapes.count_with_transformers

bench: install-dev ## measure the promised numbers, as one table
	@exec $(BIN)/python -m tests.bench

bench-engine: install-dev ## the built-in trainer against TRL, with gates (ONLY=grpo-demo,grpo-30m,sft-30m ROUNDS=3 STEPS=12 ARGUMENTS=--help)
	@exec $(BIN)/python -m tests.bench.engine $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(STEPS),--steps $(STEPS)) $(ARGUMENTS)

bench-peers: install-dev ## SFT, DPO and GRPO beside TRL, five seeds, curve by curve, with gates (ONLY=dpo)
	@exec $(BIN)/python -m tests.bench.peers $(ONLY)

bench-start: install-dev ## from the click to the first step of the demo (ARGUMENTS='--revision HEAD~5 --install')
	@exec $(BIN)/python -m tests.bench.start $(ARGUMENTS)

bench-web: install-dev ## pages at full size in Chromium beside MLflow and TensorBoard, with gates (ONLY=run_page ARGUMENTS='--revision HEAD~5')
	@exec $(BIN)/python -m tests.bench.web $(ONLY) $(ARGUMENTS)

bench-fairness: install-dev ## one person floods the planner, another works, with a gate (ARGUMENTS='--seconds 60')
	@exec $(BIN)/python -m tests.bench.fairness $(ARGUMENTS)

bench-planner: install-dev ## the planner against measured cases, with gates (CASES=a file or folder of others, docs/develop/planner-cases.md)
	@$(BIN)/python -m tests.bench.planner $(CASES); code=$$?; \
		if [ -z "$(CASES)" ]; then $(BIN)/python -m tests.bench.planner_peaks || code=1; fi; exit $$code

bench-profiling: install-dev ## marks, captures, and traces of ten million events: import, first view, tiles, with gates
	@exec $(BIN)/python -m tests.bench.profiling

measure: install-dev ## the shape of the code: modules, lines and layers of each package (DEPTH=2 for more)
	@$(BIN)/python -m tests.bench.structure $(DEPTH)

proof-faults: install-dev ## break everything at seeded moments, into docs/proofs/faults.md (root; ONLY=redis,web to do some)
	@exec $(BIN)/python -m tests.proofs.faults

proof-diagnosis: install-dev ## plant faults in real runs and have them found, into docs/proofs/diagnosis.md
	@exec $(BIN)/python -m tests.proofs.diagnosis $(ONLY)

proof-alarms: install-dev ## alarms of healthy runs and of faults, an older revision beside this one, into docs/proofs/alarms.md (OLD=revision)
	@exec $(BIN)/python -m tests.proofs.alarms $(OLD)

proof-verdict: install-dev ## what Compare says of identical pairs, planted differences and busy nodes, into docs/proofs/verdict.md (RECORD=1 runs the demos again)
	@exec $(BIN)/python -m tests.proofs.verdict $(if $(RECORD),record)

proof-captures: install-dev ## captures that survive every end, cycle and full disk, into docs/proofs/captures.md (PITWALL_PROOF_CAPTURES=3 for a short one)
	@exec $(BIN)/python -m tests.proofs.captures $(ONLY)

proof-steps: install-dev ## steps of traces beside TensorBoard's plugin, HTA and TraceLens, into docs/proofs/steps.md
	@exec $(BIN)/python -m tests.proofs.steps

proof-plans: install-dev ## a run that joins the calibration, one that dies of memory and its clone, into docs/proofs/plans.md
	@exec $(BIN)/python -m tests.proofs.plans

proof-security: install-dev ## attack consoles in three topologies, into docs/proofs/security.md (root; ONLY=matrix,attacks,H1,embedded EXAMPLES=2)
	@exec $(BIN)/python -m tests.proofs.security

proof-trainers: install-dev ## OpenRLHF, verl and TRL train on CPU through the console, into docs/proofs/trainers.md
	@exec $(BIN)/python -m tests.proofs.trainers

gpu-bench: ## the policy side on one NVIDIA GPU, as JSON: speed, memory, bfloat16 (needs torch and transformers alone)
	@if [ -x $(BIN)/python ]; then exec $(BIN)/python -m tests.bench.gpu_policy; else exec $(PYTHON) -m tests.bench.gpu_policy; fi

gpu-check: ## say what an NVIDIA machine can do, as JSON (uses $(VENV) if there is one, else $(PYTHON))
	@if [ -x $(BIN)/python ]; then exec $(BIN)/python -m jobs.engine.gpu_check.check; else exec $(PYTHON) -m jobs.engine.gpu_check.check; fi

trainer-env: install ## an environment for another trainer: TRAINER=openrlhf|verl|trl [VERSION=0.11.2]
	@[ -n "$(TRAINER)" ] || { echo "Say which trainer: make trainer-env TRAINER=openrlhf" >&2; exit 2; }
	@$(PYTHON) requirements/trainer_env.py $(TRAINER) $(VERSION) --venv $(VENV)

install:
	@$(PYTHON) requirements/install.py $(SET) --venv $(VENV)
	@$(RUN) openapi --keep >/dev/null

install-dev:
	@$(PYTHON) requirements/install.py dev --venv $(VENV)
	@$(RUN) openapi --keep >/dev/null
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NODE_PACKAGES) \
		|| echo "npm could not install what checks the pages' scripts; \`make check\` needs it." >&2; fi

$(NODE_PACKAGES): package-lock.json
	@npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

pin-images: ## write the digests of the images in docker-compose.yml (needs docker with buildx)
	@$(PYTHON) requirements/pin_images.py

lock: install-dev ## resolve requirements/*.in into the *.lock files again
	@$(BIN)/python requirements/lock.py

clean: ## remove the environment and caches; the data directory .pitwall stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build test-results node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
