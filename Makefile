# Needs Go and Node with npm, on Linux or macOS; GNU make 3.81 is enough. What else is needed goes into .tools.

GOLANGCI_VERSION := v2.15.0

FUNCTIONS := worker submit dlqalarm
# infra itself, the CDK app, takes minutes to compile and has no place in the quick targets.
PACKAGES := ./internal/... ./functions/... ./infra/local/... ./tools/...
# What runs on a laptop has to build for both systems.
LAPTOP_PACKAGES := ./infra/local/... ./internal/emulator/... ./tools/...

# The processor that the functions are built for: arm64 or amd64.
ARCH := arm64
# Empty turns the race detector off.
RACE := -race
# For one test binary; a test that hangs is told from a slow one by it.
TEST_TIMEOUT := 5m
# More flags for go test, such as '-run TestRedrive -count=1'.
TESTFLAGS :=
# Which benchmarks run, as a regular expression.
BENCH := .

GO_BUILD := CGO_ENABLED=0 go build -tags lambda.norpc -trimpath -buildvcs=false -ldflags '-s -w'
GOLANGCI := .tools/bin/golangci-lint
GOLANGCI_STAMP := .tools/golangci-lint-$(GOLANGCI_VERSION).stamp

.DEFAULT_GOAL := help
.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

# ---- build and run

.PHONY: build
build: $(FUNCTIONS:%=build/$(ARCH)/%/bootstrap) ## build the Lambda functions for linux/arm64, or ARCH=amd64

build/$(ARCH)/%/bootstrap: check-go check-arch
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $@ ./functions/$*

build/local/%/bootstrap: check-go
	@$(GO_BUILD) -o $@ ./functions/$*

# exec, so that a signal sent to make reaches the chain and not a shell in between.
.PHONY: run
run: $(FUNCTIONS:%=build/local/%/bootstrap) ## run the whole chain here; PORT, AWS_PORT, DATA_DIR and WORKERS set it up
	@$(GO_BUILD) -o build/local/chain ./infra/local
	@exec build/local/chain

# ---- test

.PHONY: test
test: check-go check-cc dynoxide ## run all tests under the race detector
	go test $(RACE) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PACKAGES)

.PHONY: bench
bench: check-go dynoxide ## run the benchmarks; BENCH picks some by name
	go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m $(TESTFLAGS) $(PACKAGES)

# ---- lint and format

.PHONY: lint
lint: check-modules vet $(GOLANGCI_STAMP) ## check modules, vet for Linux and macOS, run golangci-lint
	$(GOLANGCI) run $(PACKAGES)

.PHONY: check-modules
check-modules: check-go
	go mod verify
	go mod tidy -diff

.PHONY: vet
vet: check-go
	go vet $(PACKAGES)
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go vet -tags lambda.norpc ./functions/...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet $(LAPTOP_PACKAGES)

.PHONY: fmt
fmt: $(GOLANGCI_STAMP) ## format the Go code
	$(GOLANGCI) fmt

# ---- tools

.PHONY: tools
tools: $(GOLANGCI_STAMP) dynoxide ## install into .tools what the other targets need

# A stamp named after the version: another version in this file is another stamp, and replaces the binary.
$(GOLANGCI_STAMP): | check-go
	@echo 'Building golangci-lint $(GOLANGCI_VERSION), once; this takes a few minutes.'
	@GOBIN='$(CURDIR)/.tools/bin' GOFLAGS= CGO_ENABLED=0 \
	  go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@rm -f .tools/golangci-lint-*.stamp
	@touch $@

.PHONY: dynoxide
dynoxide: check-go
	@CGO_ENABLED=0 go run ./tools/dynoxide .tools

.PHONY: clean
clean: ## remove what was built and what profilers left
	rm -rf build *.test *.prof *.out

.PHONY: distclean
distclean: clean ## remove the tools too
	rm -rf .tools

# ---- what a target needs of the machine

.PHONY: check-go
check-go:
	@command -v go >/dev/null || \
	  { echo 'Go is not on the PATH: install the version that go.mod names, or a newer one.' >&2; exit 1; }

.PHONY: check-arch
check-arch:
	@case '$(ARCH)' in arm64|amd64) ;; \
	  *) echo 'ARCH is "$(ARCH)": Lambda has arm64 and amd64.' >&2; exit 1;; esac

.PHONY: check-cc
check-cc:
	@test -z '$(RACE)' || { set -- $$(go env CC) && command -v "$$1" >/dev/null; } || \
	  { echo 'The race detector needs a C compiler: install gcc or clang, or do without it: make test RACE=' >&2; exit 1; }
