STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GREMLINS    = github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
PACKAGE    ?= ./internal/account
FUZZTIME   ?= 10s
COUNT      ?= 1

# The modules with a go.mod of their own, below this one.
MODULES = $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path '*/testdata/*'))

.PHONY: help
help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: lint tidy test test-modules test-browser test-rpc test-prometheus fuzz ## everything that CI runs

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: lint
lint: ## gofmt, go vet (64 and 32 bits) and staticcheck
	@files="$$(gofmt -l .)" && [ -z "$$files" ] || { echo "run make fmt: $$files"; exit 1; }
	go vet ./...
	go vet -tags faults ./limiter/redisstore
	GOARCH=386 go vet ./...
	go run $(STATICCHECK) ./...
	@set -e; for module in $(MODULES); do echo "lint $$module"; ( cd $$module && \
		go vet ./... && go run $(STATICCHECK) ./... && go mod tidy -diff && go mod verify ); done

.PHONY: tidy
tidy: ## go.mod is tidy, and the modules are those of go.sum
	go mod tidy -diff
	go mod verify

.PHONY: test
test: cc redis ## all tests, with the race detector; the long streams without it, in full
	go test -race -timeout 20m ./...
	go test ./internal/lab/model ./limiter/memstore ./limiter/redisstore ./limiter/topcallers ./middleware

.PHONY: test-modules
test-modules: test-postgres ## the tests of the modules below this one
	@set -e; for module in $(filter-out examples/postgres,$(MODULES)); do \
		( cd $$module && go test ./... ); done

.PHONY: test-postgres
test-postgres: ## a store in SQL, on a PostgreSQL server that the tests start
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		.ci/install postgresql
	cd examples/postgres && go test -count 1 ./...

.PHONY: test-valkey
test-valkey: ## what asks a Redis server, on a valkey-server
	@command -v valkey-server >/dev/null || .ci/install valkey-server
	REDIS_SERVER=valkey-server go test -count 1 ./limiter/redisstore ./internal/lab/model ./examples/...

.PHONY: test-faults
test-faults: redis ## a Redis store under load and faults, held to times: wants a quiet machine
	go test -tags faults -count 1 -v -run '^TestFaults_' ./limiter/redisstore

.PHONY: test-browser
test-browser: ## whether a page in a real browser can read its limits
	@command -v chromium >/dev/null || .ci/install chromium
	BROWSER=chromium go test -count 1 -run '^TestBrowser_' ./middleware

.PHONY: test-prometheus
test-prometheus: redis ## whether a real Prometheus, the rules and the runbook of the quickstart work
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || .ci/install prometheus
	@command -v curl >/dev/null || .ci/install curl
	PROMETHEUS=prometheus go test -count 1 -run '^TestPrometheus_' ./examples/quickstart

.PHONY: test-rpc
test-rpc: ## whether the real clients of Connect, gRPC-Web and gRPC read refusals
	@command -v chromium >/dev/null || .ci/install chromium
	@command -v npm >/dev/null || .ci/install nodejs npm
	cd examples/connect/clients && npm ci --ignore-scripts --no-audit --no-fund
	cd examples/connect && BROWSER=chromium NODE=node go test -count 1 -run '^TestClients_' .

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	.ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## all benchmarks, COUNT times (1)
	go test -run '^$$' -bench . -benchmem -count $(COUNT) ./...

.PHONY: bench-peers
bench-peers: ## measure other rate limiters beside this one
	cd internal/lab/peers && go run .

.PHONY: mutants
mutants: ## break the code of PACKAGE in many ways; the tests must notice 97 % of them
	go run $(GREMLINS) unleash --workers 2 --timeout-coefficient 10 --threshold-efficacy 97 $(PACKAGE)

.PHONY: cover
cover: ## how much of the code the tests run
	go test -coverpkg ./... -coverprofile cover.out ./...
	go tool cover -func cover.out | tail -n 1

.PHONY: cc
cc: # the race detector needs a C compiler
	@command -v $$(go env CC) >/dev/null || .ci/install gcc libc6-dev

.PHONY: redis
redis: # tests of the Redis store skip without a server, and fail in CI
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || \
		.ci/install redis-server || [ -z "$$CI" ]
