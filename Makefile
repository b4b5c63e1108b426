# Forebay: `make test` is the whole check, `make bench` the whole measurement.
GO ?= go
TEST_FLAGS ?= -race
BENCH_FLAGS ?=

.PHONY: all build test lint vuln redis bench fuzz clean

all: build

build:
	$(GO) build -o bin/ ./cmd/api ./cmd/worker

# Everything: formatting, vet, staticcheck, known vulnerabilities, and all tests with the race detector. One package after the
# other (-p 1), and the stories at the end: many are about time, and on two cores another package's tests would take it from them.
test: redis lint vuln
	$(GO) build -race ./... # side by side, which -p 1 would not
	$(GO) test $(TEST_FLAGS) -p 1 $$($(GO) list ./... | grep -v /e2e)
	$(GO) test $(TEST_FLAGS) ./e2e

lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-clean, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# Only where its database can be reached: what it can't check, it says.
vuln:
	@out=$$($(GO) tool govulncheck ./... 2>&1); code=$$?; \
	if [ $$code -eq 0 ]; then echo "govulncheck: no known vulnerability"; \
	elif echo "$$out" | grep -qiE 'fetching vulnerabilities|dial tcp|no such host|i/o timeout|connection refused|forbidden|HTTP GET'; then \
		echo "govulncheck: its database can't be reached from here, so nothing was checked"; \
	else echo "$$out"; exit $$code; fi

# The tests start private servers of this binary. Where it is missing and apt may be used, it is installed.
redis:
	@command -v redis-server >/dev/null 2>&1 || { \
		if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
			echo "redis-server is missing: installing it with apt"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null; \
		else \
			echo "The tests need the program redis-server (6.2 or later) on PATH."; \
			echo "Install it, for example: sudo apt-get install redis-server, or brew install redis."; exit 1; \
		fi; }

# Real Redis, real binaries, baselines in the same run; prints Markdown (docs/bench.md).
bench: redis
	$(GO) run ./bench $(BENCH_FLAGS)

# Every fuzz target for a short while.
FUZZTIME ?= 10s
fuzz:
	@for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for name in $$(grep -oE '^func Fuzz[A-Za-z0-9]*' $$f | cut -c6-); do \
			echo "$$f $$name"; $(GO) test $$(dirname $$f) -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) || exit 1; \
		done; \
	done

clean:
	rm -rf bin
