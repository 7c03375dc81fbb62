# Needs Go and Node with npm, on Linux or macOS; GNU make 3.81 is enough. What else is needed goes into .tools.

GOLANGCI_VERSION := v2.15.0

FUNCTIONS := worker submit dlqalarm
BASELINES := bare lean seed
# infra itself, the CDK app, takes minutes to compile and has no place in the quick targets.
PACKAGES := ./internal/... ./functions/... ./infra/local/... ./infra/agentctl/... ./infra/bench/... ./tools/...
# What runs on a laptop has to build for both systems.
LAPTOP_PACKAGES := ./infra/local/... ./infra/agentctl/... ./infra/bench/... ./internal/emulator/... ./tools/...

# The processor that the functions are built for: arm64 or amd64.
ARCH := arm64
# What the worker is built with beside what needs no service: bedrock, openai, ssm, s3, kb, with commas, after slim. Without
# slim it has everything, and starts slower. This is what CDKFLAGS sets it up with; the CDK app refuses a worker that lacks it.
needs = $(if $(findstring $(1),$(CDKFLAGS)),$(2))
WORKER_TAGS = slim$(call needs,model=bedrock:,$(comma)bedrock)$(call needs,model=openai:,$(comma)openai)$(call needs,openaiKeyParameter=,$(comma)ssm)$(call needs,retriever=s3:,$(comma)s3)$(call needs,retriever=kb:,$(comma)kb)
comma := ,
# Empty turns the race detector off.
RACE := -race
# For one test binary; a test that hangs is told from a slow one by it.
TEST_TIMEOUT := 5m
# More flags for go test, such as '-run TestRedrive -count=1'.
TESTFLAGS :=
# Which Go benchmarks run, as a regular expression.
BENCH := .
# More flags for the CDK, such as '-c stage=prod -c alarmEmail=me@example.com'.
CDKFLAGS :=
# What make invoke runs, and with which event.
FUNCTION := worker
EVENT := functions/worker/testdata/sqs.json

GO_BUILD = CGO_ENABLED=0 go build -tags 'lambda.norpc$(TAGS)' -trimpath -buildvcs=false -ldflags '-s -w'
SILENT_JSII := JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20
# Node 20 still does; the CDK's parts would say at each start that they would rather have a newer one.
CDK := cd infra && ARCH=$(ARCH) $(SILENT_JSII) \
  AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED=true ../.tools/cdk/node_modules/.bin/cdk
MINISTACK_VERSION := 1.5.33
# Another emulator of SQS, to compare ours with.
KUMO := github.com/sivchari/kumo
KUMO_VERSION := v0.33.1

GOLANGCI := .tools/bin/golangci-lint
GOLANGCI_STAMP := .tools/golangci-lint-$(GOLANGCI_VERSION).stamp
CDK_STAMP := .tools/cdk/stamp
MINISTACK_STAMP := .tools/venv/ministack-$(MINISTACK_VERSION).stamp
KUMO_STAMP := .tools/kumo-$(KUMO_VERSION).stamp

.DEFAULT_GOAL := help
.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

# ---- build and run

.PHONY: build
build: $(FUNCTIONS:%=build/$(ARCH)/%/bootstrap) ## build the Lambda functions for linux/arm64, or ARCH=amd64

build/$(ARCH)/worker/bootstrap: TAGS = $(WORKER_TAGS:%=,%)

build/$(ARCH)/%/bootstrap: check-go check-arch
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $@ ./functions/$*

$(FUNCTIONS:%=build/local/%/bootstrap): build/local/%/bootstrap: check-go
	@$(GO_BUILD) -o $@ ./functions/$*

# What make bench compares: the worker as it deploys, and the others.
build/bench/worker/bootstrap: TAGS = $(WORKER_TAGS:%=,%)

build/bench/worker/bootstrap: check-go
	@$(GO_BUILD) -o $@ ./functions/worker

$(BASELINES:%=build/bench/%/bootstrap): build/bench/%/bootstrap: check-go
	@$(GO_BUILD) -o $@ ./infra/bench/baseline/$*

# exec, so that a signal sent to make reaches the chain and not a shell in between.
.PHONY: run
run: $(FUNCTIONS:%=build/local/%/bootstrap) ## run the whole chain here; PORT, AWS_PORT, DATA_DIR, WORKERS, CHAOS set it up
	@$(GO_BUILD) -o build/local/chain ./infra/local
	@exec build/local/chain

.PHONY: agentctl
agentctl: check-go ## build the operator's command line, build/agentctl
	$(GO_BUILD) -o build/agentctl ./infra/agentctl

# ---- test

.PHONY: test
test: check-go check-cc dynoxide ## run all tests under the race detector
	go test $(RACE) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PACKAGES)

.PHONY: faults
faults: check-go dynoxide ## put TASKS=10000 through the chain while everything goes wrong; SEED=<n> does it again
	@go build -buildvcs=false -o build/local/faults ./infra/local/faults
	@exec build/local/faults

.PHONY: disasters
disasters: check-go dynoxide ## let the disasters of others happen here, in their whole size
	go test -v -count=1 -timeout 15m -run 'TestTwoThirds|TestCrashes' ./internal/emulator/drill -disasters

.PHONY: soak
soak: check-go dynoxide ## run under steady load and faults for MINUTES=30, and see whether anything grows
	@go build -buildvcs=false -o build/local/soak ./infra/local/soak
	@exec build/local/soak

.PHONY: bench
bench: $(FUNCTIONS:%=build/local/%/bootstrap) build/bench/worker/bootstrap $(BASELINES:%=build/bench/%/bootstrap) dynoxide $(KUMO_STAMP) ## measure ours beside others, ROUNDS=5, 10 minutes; writes build/bench.json
	@$(GO_BUILD) -o build/local/chain ./infra/local
	@$(GO_BUILD) -o build/local/bench ./infra/bench
	@exec build/local/bench

.PHONY: bench-go
bench-go: check-go dynoxide ## run the Go benchmarks; BENCH picks some by name, TESTFLAGS=-count=10 suits benchstat
	go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m $(TESTFLAGS) $(PACKAGES)

# The CDK takes minutes to compile the first time. Its engine is one process that takes one call at a time.
.PHONY: test-infra
test-infra: check-go dynoxide ## run the tests of the CDK app
	$(SILENT_JSII) go test -timeout 15m $(TESTFLAGS) ./infra ./infra/invoke

.PHONY: golden
golden: check-go ## renew the template that the tests compare with
	$(SILENT_JSII) go test -count=1 -run '^TestGoldenTemplate$$' ./infra -update

# ---- deploy

.PHONY: synth
synth: check-go check-arch $(CDK_STAMP) ## write the CloudFormation template; no account needed; CDKFLAGS='-c stage=prod'
	$(CDK) synth --quiet -c architecture=$(ARCH) $(CDKFLAGS)
	@echo 'The template is in infra/cdk.out.'

.PHONY: bootstrap
bootstrap: check-go check-arch $(CDK_STAMP) ## prepare your account and region for the CDK, once
	$(CDK) bootstrap -c architecture=$(ARCH) $(CDKFLAGS)

.PHONY: deploy
deploy: check-go check-arch $(CDK_STAMP) ## deploy to the account that your AWS credentials are of
	$(CDK) deploy -c architecture=$(ARCH) $(CDKFLAGS)

.PHONY: destroy
destroy: check-go check-arch $(CDK_STAMP) ## take the stack away again; table and queues stay
	$(CDK) destroy -c architecture=$(ARCH) $(CDKFLAGS)

.PHONY: rehearse
rehearse: check-go $(CDK_STAMP) $(MINISTACK_STAMP) ## deploy into a local AWS and drive what was deployed
	@go build -buildvcs=false -o build/local/rehearse ./infra/rehearse
	@$(GO_BUILD) -o build/agentctl ./infra/agentctl
	@exec build/local/rehearse

.PHONY: invoke
invoke: check-function build/local/$(FUNCTION)/bootstrap ## run a function once with an event; FUNCTION=worker EVENT=file.json
	@$(GO_BUILD) -o build/local/invoke ./infra/invoke
	@build/local/invoke -function '$(FUNCTION)' -event '$(EVENT)'

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
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go vet -tags lambda.norpc,slim ./functions/worker
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet $(LAPTOP_PACKAGES)

.PHONY: lint-infra
lint-infra: check-go $(GOLANGCI_STAMP) ## vet and lint the CDK app
	go vet ./infra ./infra/invoke ./infra/rehearse
	$(GOLANGCI) run ./infra ./infra/invoke ./infra/rehearse

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

# Built in its own folder of the module cache, so that its own go.sum vouches for what it links.
$(KUMO_STAMP): | check-go
	@echo 'Building kumo $(KUMO_VERSION), once; this takes a minute or two.'
	@go mod download $(KUMO)@$(KUMO_VERSION)
	@mkdir -p .tools/bin
	@cd "$$(go env GOMODCACHE)/$(KUMO)@$(KUMO_VERSION)" && \
	  GOFLAGS= CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o '$(CURDIR)/.tools/bin/kumo' ./cmd/kumo
	@rm -f .tools/kumo-*.stamp
	@touch $@

$(CDK_STAMP): infra/package.json infra/package-lock.json
	@echo 'Installing the CDK command line.'
	@rm -rf .tools/cdk && mkdir -p .tools/cdk && cp infra/package.json infra/package-lock.json .tools/cdk
	@cd .tools/cdk && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

$(MINISTACK_STAMP):
	@echo 'Installing MiniStack $(MINISTACK_VERSION).'
	@python3 -m venv --clear .tools/venv
	@.tools/venv/bin/pip install --quiet --disable-pip-version-check ministack==$(MINISTACK_VERSION)
	@touch $@

.PHONY: clean
clean: ## remove what was built and what profilers left
	rm -rf build infra/cdk.out *.test *.prof *.out

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

.PHONY: check-function
check-function:
	@case ' $(FUNCTIONS) ' in *' $(FUNCTION) '*) ;; \
	  *) echo 'FUNCTION is "$(FUNCTION)": there are $(FUNCTIONS).' >&2; exit 1;; esac

.PHONY: check-cc
check-cc:
	@test -z '$(RACE)' || { set -- $$(go env CC) && command -v "$$1" >/dev/null; } || \
	  { echo 'The race detector needs a C compiler: install gcc or clang, or do without it: make test RACE=' >&2; exit 1; }
