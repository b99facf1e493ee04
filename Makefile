# Edgemeter. `make help` lists the targets; docs/quickstart.md explains them.
#
#   shared/*.c                         -> build/libmeter.a
#   aggregator/ without main.c         -> build/libmeterd.a
#   aggregator/main.c                  -> build/meterd
#   config, ngx_module/, shared/       -> build/ngx_http_meter_module.so
#   sql/                               -> build/gen/ (tools/embed-sql)
#   t/unit/test_X.c                    -> build/unit/test_X
#   t/integration/X.c                  -> build/integration/X
#   t/fuzz/fuzz_X.c                    -> build/fuzz/fuzz_X (clang)
#   t/js/X/package-lock.json           -> build/js/X/node_modules (npm)
#
# VARIANT=asan builds the same with ASan and UBSan into build-asan/ (also
# spelled SANITIZE=1), VARIANT=fuzz with clang's fuzzer into build/fuzz/.

ifdef SANITIZE
VARIANT := asan
endif

BUILD_plain := build
BUILD_asan  := build-asan
BUILD_fuzz  := build/fuzz
VARIANT     ?= plain
BUILD       := $(BUILD_$(VARIANT))
GEN         := build/gen
JOBS        ?= $(shell nproc 2>/dev/null || echo 2)

PREFIX      ?= /usr/local
SBINDIR     ?= $(PREFIX)/sbin
DATADIR     ?= $(PREFIX)/share/edgemeter
MANDIR      ?= $(PREFIX)/share/man
LIBDIR      ?= $(PREFIX)/lib
UNITDIR     ?= $(LIBDIR)/systemd/system
SYSCONFDIR  ?= /etc
MODULEDIR   ?= /usr/lib/nginx/modules

export PORT RUN_DIR RULES NGINX_CONF DATABASE_URL

# --- compiler -----------------------------------------------------------

WARNINGS := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes \
	-Wmissing-prototypes -Wwrite-strings -Wvla \
	-Wno-missing-field-initializers -Werror
INCLUDES := -Ishared -Iaggregator -I$(GEN)
LIBRARIES := libuv libpq yaml-0.1 jansson libcrypto libxxhash zlib

# pkg-config is asked once, and only when something is compiled: `make deps`
# must work before it is installed.
LIB_CFLAGS = $(eval LIB_CFLAGS := $$(shell pkg-config --cflags $(LIBRARIES)))$(LIB_CFLAGS)
LIB_LIBS   = $(eval LIB_LIBS := $$(shell pkg-config --libs $(LIBRARIES)))$(LIB_LIBS)

OPT_plain := -O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fPIE
LD_plain  := -pie -Wl,-z,relro -Wl,-z,now
OPT_asan  := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=all
LD_asan   := -fsanitize=address,undefined
OPT_fuzz  := -O1 -g -fno-omit-frame-pointer \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
LD_fuzz   := -fsanitize=fuzzer,address,undefined

ifeq ($(VARIANT),fuzz)
CC := clang
endif

COMPILE = $(CC) -std=gnu11 $(OPT_$(VARIANT)) $(WARNINGS) -D_GNU_SOURCE \
	$(INCLUDES) $(LIB_CFLAGS) $(CFLAGS) -MMD -MP
LINK    = $(CC) $(LD_$(VARIANT)) $(LDFLAGS)

# One short line for each command; V=1 shows them whole.
ifdef V
SAY := @:
else
SAY := @printf '  %-5s %s\n'
.SILENT:
endif

# --- sources ------------------------------------------------------------

SHARED   := $(wildcard shared/*.c)
DAEMON   := $(filter-out aggregator/main.c, \
	$(wildcard aggregator/*.c aggregator/*/*.c))
MAIN     := $(wildcard aggregator/main.c)
UNITS    := $(wildcard t/unit/test_*.c)
FUZZERS  := $(wildcard t/fuzz/fuzz_*.c)
BENCHES  := $(shell grep -l '^main\>' bench/*.c 2>/dev/null)
BENCHLIB := $(filter-out $(BENCHES),$(wildcard bench/*.c))
SQL      := $(wildcard sql/*/*.sql sql/*/*/*.sql)
SQL_DIRS := $(wildcard sql/*/ sql/*/*/)
MODULE_SOURCES := $(wildcard config ngx_module/*.[ch] shared/*.[ch])

objects   = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GEN_C    := $(GEN)/statements.c $(GEN)/migrations.c
GEN_O    := $(patsubst $(GEN)/%.c,$(BUILD)/obj/gen/%.o,$(GEN_C))
UNIT_BIN := $(patsubst t/unit/%.c,$(BUILD)/unit/%,$(UNITS))
CLIENTS  := $(patsubst t/%.c,$(BUILD)/%,$(wildcard t/integration/*.c))
FUZZ_BIN := $(patsubst t/fuzz/%.c,$(BUILD_fuzz)/%,$(FUZZERS))
REPLAYS  := $(patsubst t/fuzz/fuzz_%.c,$(BUILD)/replay/%,$(FUZZERS))
PACKAGES := $(patsubst t/js/%/package-lock.json,build/js/%/installed, \
	$(wildcard t/js/*/package-lock.json))
BENCH_BIN := $(patsubst bench/%.c,$(BUILD)/bench/%,$(BENCHES))

SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))

# --- for people ---------------------------------------------------------

.PHONY: help
help: ## list the targets
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))
	echo
	echo '  make run takes PORT, RUN_DIR, RULES, NGINX_CONF, DATABASE_URL'

.PHONY: run
run: ## postgres, meterd and nginx on 127.0.0.1:$PORT until Ctrl-C
	tools/deps run
	+$(SUBMAKE) build
	exec tools/run

.PHONY: test
test: ## everything that CI runs; ends with one summary line
	tools/deps test
	+$(SUBMAKE) daemon module units clients benches packages
	+$(SUBMAKE) VARIANT=asan daemon units clients replays
	exec tools/test $(TESTS)

.PHONY: build
build: ## build/meterd and build/ngx_http_meter_module.so
	tools/deps build
	+$(SUBMAKE) daemon module

.PHONY: lint
lint: ## format, static analysis, include arrows, documentation
	tools/deps lint
	+$(SUBMAKE) $(GEN)/statements_gen.h
	exec tools/lint

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZ_SECONDS (20)
	tools/deps fuzz
	+$(SUBMAKE) VARIANT=fuzz fuzzers
	exec tools/fuzz

.PHONY: torture
torture: ## kill and cut everything under load for TORTURE_SECONDS (60) each
	tools/deps test
	+$(SUBMAKE) build
	TORTURE_SECONDS=$${TORTURE_SECONDS:-60} exec tools/test torture

.PHONY: soak
soak: ## load and kills for SOAK_SECONDS (600), then exactness and memory
	tools/deps run
	+$(SUBMAKE) build
	exec t/soak/soak

.PHONY: bench
bench: ## every figure of docs/performance.md, one bench after the other
	+status=0; for part in ingest registry projections query counters edge; do \
		$(MAKE) --no-print-directory bench-$$part || status=1; \
	done; exit $$status

.PHONY: bench-ingest
bench-ingest: ## ingest against its ceilings, in one interleaved run
	tools/deps run
	+$(SUBMAKE) daemon module benches
	exec bench/ingest

.PHONY: bench-registry
bench-registry: ## ingest with ten million known ids against none
	tools/deps run
	+$(SUBMAKE) daemon module benches
	exec bench/registry

.PHONY: bench-projections
bench-projections: ## counters, meters and usage: ingest and reads
	tools/deps run
	+$(SUBMAKE) daemon module benches
	exec bench/projections

.PHONY: bench-query
bench-query: ## series: reads, search, buffer and ingest
	tools/deps run
	+$(SUBMAKE) daemon module benches
	exec bench/query

.PHONY: bench-counters
bench-counters: ## the counters API against plain upserts
	tools/deps run
	+$(SUBMAKE) daemon module benches
	exec bench/counters

.PHONY: bench-edge
bench-edge: ## what metering costs a request, in one interleaved run
	tools/deps bench-edge
	+$(SUBMAKE) build
	exec bench/edge

.PHONY: install
install: build ## into DESTDIR and PREFIX (/usr/local)
	+$(SUBMAKE) install-files

.PHONY: uninstall
uninstall: ## take away what install put there; configuration and state stay
	+$(SUBMAKE) uninstall-files

# Without looking for packages, for debian/rules.
.PHONY: install-files uninstall-files
install-files uninstall-files:
	tools/install-files $(@:-files=) '$(DESTDIR)' sbin=$(SBINDIR) \
		data=$(DATADIR) man=$(MANDIR) lib=$(LIBDIR) unit=$(UNITDIR) \
		etc=$(SYSCONFDIR) module=$(MODULEDIR)

.PHONY: deb
deb: ## Debian packages of module and daemon, in build/deb
	tools/deps build deb
	+$(SUBMAKE) daemon module
	exec tools/build-deb

.PHONY: test-packages
test-packages: ## install, use and purge the packages in a new Debian (as root)
	tools/deps test-packages
	+$(SUBMAKE) deb
	exec tools/test-packages

.PHONY: dist
dist: ## build/edgemeter-VERSION.tar.gz, the same bytes each time
	exec tools/dist build

.PHONY: deps
deps: ## install the Debian packages of all targets (as root)
	tools/deps run test lint fuzz

.PHONY: clean
clean: ## remove what was built; .run stays
	rm -rf build build-asan

# --- programs -----------------------------------------------------------

.PHONY: daemon module units clients fuzzers replays benches packages
daemon:  $(if $(MAIN),$(BUILD)/meterd)
module:  $(if $(filter plain,$(VARIANT)),$(BUILD)/ngx_http_meter_module.so)
units:   $(UNIT_BIN)
clients: $(CLIENTS)
fuzzers: $(FUZZ_BIN)
replays: $(REPLAYS)
benches: $(BENCH_BIN)
packages: $(PACKAGES)

$(BUILD)/meterd: $(call objects,$(MAIN)) $(BUILD)/libmeterd.a $(BUILD)/libmeter.a
	$(SAY) LINK $@
	$(LINK) -o $@ $^ $(LIB_LIBS) -lm

$(BUILD)/libmeter.a: $(call objects,$(SHARED))
$(BUILD)/libmeterd.a: $(call objects,$(DAEMON)) $(GEN_O)
$(BUILD)/%.a:
	$(SAY) AR $@
	rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/unit/%: $(BUILD)/obj/t/unit/%.o $(BUILD)/libmeterd.a $(BUILD)/libmeter.a
	$(SAY) LINK $@
	mkdir -p $(@D)
	$(LINK) -o $@ $^ -lcmocka $(LIB_LIBS) -lm

$(BUILD)/integration/%: $(BUILD)/obj/t/integration/%.o $(BUILD)/libmeterd.a $(BUILD)/libmeter.a
	$(SAY) LINK $@
	mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIB_LIBS) -lm

$(BUILD_fuzz)/fuzz_%: $(BUILD)/obj/t/fuzz/fuzz_%.o $(BUILD)/libmeterd.a $(BUILD)/libmeter.a
	$(SAY) LINK $@
	mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIB_LIBS) -lm

$(BUILD)/replay/%: $(BUILD)/obj/tools/fuzz-replay.o $(BUILD)/obj/t/fuzz/fuzz_%.o $(BUILD)/libmeterd.a $(BUILD)/libmeter.a
	$(SAY) LINK $@
	mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIB_LIBS) -lm

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(call objects,$(BENCHLIB)) $(BUILD)/libmeterd.a $(BUILD)/libmeter.a
	$(SAY) LINK $@
	mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIB_LIBS) -lm -lpthread

$(BUILD)/ngx_http_meter_module.so: $(MODULE_SOURCES) tools/build-module
	$(SAY) NGX $@
	tools/build-module '$(CURDIR)/$(BUILD)' $(if $(V),verbose)

# What tests in JavaScript need, exactly as the lock file says.
build/js/%/installed: t/js/%/package.json t/js/%/package-lock.json t/js/%/.npmrc
	$(SAY) NPM $(@D)
	rm -rf $(@D)
	mkdir -p $(@D)
	cp $^ $(@D)
	cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
	touch $@

# --- objects ------------------------------------------------------------

$(BUILD)/obj/%.o: %.c | $(GEN)/statements_gen.h
	$(SAY) CC $<
	mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(GEN)/%.c
	$(SAY) CC $<
	mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

$(GEN)/statements_gen.h $(GEN_C) &: $(SQL) $(SQL_DIRS) tools/embed-sql
	$(SAY) SQL $(GEN)
	tools/embed-sql sql $(GEN)

.SECONDARY:
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
