# Forebay: `make test` runs all checks, `make bench` all measurements, and `make chaos` the long
# search for faults.
GO ?= go
TEST_FLAGS ?= -race
# Packages without a goroutine of their own, which the race detector would only slow down.
ONE_THREAD := ./internal/config ./internal/strictyaml ./internal/units
BENCH_FLAGS ?=

.PHONY: all build test lint vuln redis nginx curl chaos bench fuzz module-path clean

all: build

build:
	$(GO) build -o bin/ ./cmd/api ./cmd/worker ./cmd/forebay

# All checks: formatting, vet, staticcheck, known vulnerabilities, and all tests with the race
# detector. Packages run one after the other (-p 1), and the stories last: many tests measure time,
# and on two cores another package's tests would take it from them. -count=1 is needed because the
# cache of go test doesn't know the binaries that those tests build.
test: redis nginx curl lint vuln
	$(GO) build -race ./... # in parallel, which -p 1 would prevent
	$(GO) test $(filter-out -race,$(TEST_FLAGS)) $(ONE_THREAD)
	$(GO) test $(TEST_FLAGS) -p 1 $$($(GO) list ./... | grep -v -e /e2e -e /chaos -e /internal/config -e /internal/strictyaml -e /internal/units)
	cd bench && $(GO) test $(TEST_FLAGS) ./...
	$(GO) test $(TEST_FLAGS) -p 1 -count=1 ./e2e ./chaos

lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then \
		echo "not gofmt-clean, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	cd bench && $(GO) vet ./... && "$$(cd .. && $(GO) tool -n staticcheck)" ./...

# This needs access to a database. If that can't be reached, nothing is checked, and the output says
# so.
vuln:
	@out=$$($(GO) tool govulncheck ./... 2>&1); code=$$?; \
	if [ $$code -eq 0 ]; then echo "govulncheck: no known vulnerability"; \
	elif echo "$$out" | grep -qiE -e 'fetching vulnerabilities|dial tcp|no such host|i/o timeout' \
		-e 'connection refused|forbidden|HTTP GET'; then \
		echo "govulncheck: its database can't be reached from here, so nothing was checked"; \
	else echo "$$out"; exit $$code; fi

# The tests start private servers of these programs. Missing ones are installed if apt may be used.
# policy-rc.d keeps Debian from starting them as services.
redis:
	@$(call program,redis-server,redis-server,redis-server (6.2 or later),redis)
nginx:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; $(call program,nginx,nginx-light,nginx,nginx)
curl:
	@$(call program,curl,curl,curl,curl)

# $(call program,PROGRAM,DEBIAN PACKAGE,PROGRAM IN WORDS,HOMEBREW PACKAGE)
define program
command -v $(1) >/dev/null 2>&1 || { \
	if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
		echo "$(1) is missing: installing it with apt"; \
		policy=/usr/sbin/policy-rc.d; \
		if [ ! -e $$policy ]; then \
			trap 'rm -f /usr/sbin/policy-rc.d' EXIT; trap 'exit 1' INT TERM; \
			printf '#!/bin/sh\nexit 101\n' >$$policy && chmod +x $$policy || exit 1; \
		fi; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $(2) >/dev/null; \
	else \
		echo "The tests need the program $(3) on PATH."; \
		echo "Install it, for example: sudo apt-get install $(2), or brew install $(4)."; exit 1; \
	fi; }
endef

# Breaks everything, in an order drawn from a seed. The log begins with the seed, and CHAOS_SEED
# repeats one.
CHAOS_SECONDS ?= 60
CHAOS_SEED ?=
chaos: redis
	CHAOS_SECONDS=$(CHAOS_SECONDS) CHAOS_SEED=$(CHAOS_SEED) $(GO) test $(TEST_FLAGS) -count=1 -v \
		-timeout $$(($(CHAOS_SECONDS) + 600))s -run '^TestEveryJobEndsOnceWhateverBreaks$$' ./chaos

# Real Redis, real binaries, and baselines in the same run. Prints Markdown (docs/bench.md).
bench: redis
	cd bench && $(GO) run . $(BENCH_FLAGS)

# Runs every fuzz target for a short time.
FUZZTIME ?= 10s
fuzz:
	@for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for name in $$(grep -oE '^func Fuzz[A-Za-z0-9]*' $$f | cut -c6-); do \
			echo "$$f $$name"; \
			$(GO) test $$(dirname $$f) -run '^$$' -fuzz "^$$name$$" \
				-fuzztime $(FUZZTIME) || exit 1; \
		done; \
	done

# make module-path PATH=example.org/forebay: for a fork that is published under another path. PATH
# then isn't the search path of programs, so the recipe looks that up.
module-path:
	@new='$(PATH)'; PATH=$$(command -p getconf PATH); export PATH; \
	form='^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)*$$'; \
	if ! printf '%s\n' "$$new" | grep -Eq "$$form"; then \
		echo "make module-path PATH=example.org/forebay: the path begins with a domain's name" \
			>&2; exit 1; fi; \
	old=$$(sed -n 's/^module //p' go.mod); \
	export old new; \
	find . -name .git -prune -o \( -name '*.go' -o -name go.mod \) -type f -print0 | \
	xargs -0 perl -pi -e 's{"\Q$$ENV{old}\E(?=/)}{"$$ENV{new}}g;' \
		-e 's{(^|\s)\Q$$ENV{old}\E(?=[/\s])}{$$1$$ENV{new}}g if $$ARGV =~ /go\.mod$$/'

clean:
	rm -rf bin
