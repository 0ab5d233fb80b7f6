# grapevine: `make demo` shows it, `make test` tests it. Both install what is missing.

SHELL := /bin/bash
export CGO_ENABLED = 0
# The same for all that compiles: what was compiled with -trimpath is compiled once more without.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null))
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 20s
SEED ?= 1
BESIDE ?= 2
FOR ?= 5m
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
tally = go build -o bin/tally ./tests/tally && bin/tally

.PHONY: help
help: ## What there is to make
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: build
build: ## The program: bin/grapevine
	go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/grapevine ./cmd/grapevine

.PHONY: build-all
build-all: ## The program for amd64 and arm64: bin/grapevine-amd64, bin/grapevine-arm64
	@for arch in amd64 arm64; do GOARCH=$$arch go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/grapevine-$$arch ./cmd/grapevine || exit 1; done

.PHONY: release
release: build build-all ## For amd64 and arm64: the program, and the plugin laid out (build/plugin-amd64, build/plugin-arm64) for `docker plugin create`
	@for arch in amd64 arm64; do scripts/build-plugin --arch $$arch --directory build/plugin-$$arch || exit 1; done

.PHONY: demo
demo: ## Three Docker hosts on this machine, one network over them (KEEP=1: leave them running)
	@scripts/setup demo
	@echo "building the agent"
	@$(MAKE) --no-print-directory -s build
	@go build -o bin/demo ./tests/demo
	@bin/demo $(if $(KEEP),-keep build/demo.kept)

.PHONY: demo-clean
demo-clean: ## End the hosts that `make demo KEEP=1` left here
	@go run ./tests/lab/cmd/lab clean -noted build/demo.kept

# So many tiers beside each other (BESIDE=1 on a slow machine): lab, which takes longest, in all of it, the others one after the other
# in the other places. As many scenarios of lab run as the processors have time for, so that what takes long and computes little
# begins early, and no tier is alone at the end.
.PHONY: test
test: setup build trees ## All tests: lab, a fifth of uml, plugin, engines, chaos, page (with scripts/setup page), unit, policy, fuzz, a part of race
	@scripts/build-plugin --directory build/plugin
	@$(tally) -beside $(BESIDE) lab unit uml engines plugin chaos race policy fuzz page

.PHONY: quick
quick: ## What touches neither the host nor Docker, in seconds
	@go vet ./... && go test -short ./api/... ./cluster ./cmd/... ./dns/names ./driver/ports ./config ./diagnose/paths ./ring ./overlay/pipeline ./tests/scenario ./tests/tally

.PHONY: test-unit test-lab test-plugin test-uml test-qemu test-engines
test-unit: setup build ## The packages by themselves
	@$(tally) unit policy fuzz
test-lab: setup build ## Scenarios on Docker hosts made of namespaces
	@$(tally) all-lab all-chaos
test-plugin: setup build ## Scenarios with the managed plugin
	@scripts/build-plugin --directory build/plugin
	@$(tally) plugin
test-engines: setup build trees ## All scenarios on all releases of Docker, with and without live-restore: an hour
	@scripts/build-plugin --directory build/plugin
	@$(tally) all-engines
test-uml: setup build ## Scenarios on kernels of their own (User-Mode Linux)
	@$(tally) all-uml
test-qemu: build ## Scenarios on an ordinary kernel, with the fast path beside its openvswitch module (QEMU, no KVM)
	@scripts/setup bench
	@$(tally) qemu

.PHONY: test-page
test-page: ## The web page in Debian's Chromium (PICTURES=dir: leave what it showed there)
	@scripts/setup page
	@go build -o bin/tally ./tests/tally && CI=1 bin/tally page

.PHONY: race
race: setup ## The unit tests with the race detector
	CGO_ENABLED=1 go test -race $$(go list ./... | grep -v /tests)

.PHONY: bench
bench: build ## Throughput, round trips and docker run against Docker's overlay, as ratios
	@scripts/setup bench
	@go build -o bin/bench ./tests/bench
	@bin/bench -kind namespace -tree "$$(scripts/tree trixie)"
	@bin/bench -kind uml
	@bin/bench -kind qemu -tree "$$(scripts/tree trixie)" -kernel "$$(scripts/kernel trixie)" -only 'fast path' -fastpath on -overlay=false
	@bin/bench -kind qemu -tree "$$(scripts/tree trixie)" -kernel "$$(scripts/kernel trixie)" -only services -rounds 3 -seconds 2

.PHONY: sim
sim: ## Clusters of up to 1,000 hosts in one process and virtual time: docs/measurements/simulation.md
	go test ./tests/sim -count=1 -v -timeout 0 -args -hosts 12,100,1000 -loss 0,5,20 -partition 10m -truth 50 -catch-up 1000 \
	  -dir /dev/shm -out "$$PWD/docs/measurements/simulation.md"

.PHONY: chaos
chaos: setup build ## Four Docker hosts under faults (SEED=n, FOR=5m, ENV=GRAPEVINE_...=...): docs/measurements/chaos.md
	@go build -o bin/chaos ./tests/chaos
	@bin/chaos -seed $(SEED) -for $(FOR) -env "$(ENV)"

.PHONY: soak
soak: setup build ## Networks, containers and hosts come and go by the thousand, and leave nothing (FOR=5m): docs/measurements/soak.md
	@go build -o bin/soak ./tests/soak
	@bin/soak -for $(FOR)

.PHONY: flood
flood: setup build ## What who has no key can cost an agent, at each socket that it has: docs/measurements/floods.md
	@go build -o bin/flood ./tests/flood
	@bin/flood

.PHONY: plugin
plugin: build ## The managed plugin grapevine:latest, in this machine's Docker (or that of DOCKER_HOST)
	@scripts/build-plugin

.PHONY: lint
lint: ## gofmt, go vet, staticcheck: a part of CI
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "gofmt -w $$files"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

.PHONY: lint-all
lint-all: lint ## All of lint, and golangci-lint (.golangci.yml), which takes minutes to build
	go run $(GOLANGCI) run ./...

# Once more, since package testing may take the end of the time for a failure; a true one has left its input.
.PHONY: fuzz
fuzz: ## Each fuzz test for FUZZTIME (20s)
	@set -e; for file in $$(git grep -l 'func Fuzz' -- '*_test.go'); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    echo "$$name in ./$$(dirname $$file)"; \
	    run="go test -run ^$$ -fuzz ^$$name\$$ -fuzztime $(FUZZTIME) ./$$(dirname $$file)"; \
	    $$run || $$run; \
	  done; done

.PHONY: generate
generate: ## What is generated: tc programs (clang-14), docs/design/pipeline.md
	go generate ./...

.PHONY: docs
docs: ## docs/design/pipeline.md, docs/use/options.md, docs/man and tables of docs/operate from the code
	go generate ./overlay/pipeline
	go test ./config -update
	go test ./observe/metrics -run TestPage -update
	go test ./cmd/grapevine -run 'TestManPagesAreCurrent|TestProblemsAreListed' -update

.PHONY: trees
trees: setup ## Debian trees with other releases of Docker
	@scripts/tree trixie >/dev/null
	@scripts/tree forky >/dev/null

.PHONY: setup
setup: ## Install what the tests need (Debian)
	@scripts/setup test
	@scripts/compose >/dev/null
	@scripts/firewalls >/dev/null

.PHONY: clean
clean: ## Remove what was built, and labs of dead processes
	@go run ./tests/lab/cmd/lab clean
	rm -rf bin
