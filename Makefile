# Mayfly. Start with `make run` and `make test`; `make help` lists all targets.
#
#   BUILD=dir      where to build (default: build, or build-SAN with SAN)
#   SAN=address    sanitizer build: address (with undefined), undefined, or thread
#   RAFT=no        build without cargo and the Raft library, and so without cluster mode
#   ENGINE=rocksdb the engine of the server under test (default: memory)
#   V=1            show the commands

SAN     ?=
BUILD   ?= build$(if $(SAN),-$(SAN))
CC      ?= gcc
PYTHON  ?= /usr/bin/python3
PREFIX  ?= /usr/local
PORT    ?= 6379
ENGINE  ?= memory
RAFT    ?= yes
Q       := $(if $(V),,@)

LUA        := $(shell pkg-config --cflags lua5.1 2>/dev/null || echo -I/usr/include/lua5.1)
CFLAGS_ALL := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wshadow=local -Wstrict-prototypes -Wmissing-prototypes \
              -Wno-missing-field-initializers -Isrc $(if $(SAN),-g1,-g) -fno-omit-frame-pointer -fno-strict-aliasing $(LUA) $(CFLAGS)
LIBS       := -luv -lrocksdb -llzf -lmicrohttpd -lssl -lcrypto $(shell pkg-config --libs lua5.1 2>/dev/null || echo -llua5.1) -lm -lpthread

# In the builds of `make test` all test programs share one library: linking them takes a tenth of the time.
SHARED := $(if $(filter address,$(SAN))$(filter build-check,$(BUILD)),yes)
ifneq ($(SHARED),)
  CFLAGS_ALL += -fPIC -fno-semantic-interposition
endif
ifeq ($(SAN),)
  # Only the default build has link-time optimisation; with another BUILD linking takes a second.
  LTO := $(if $(filter build,$(BUILD)),-flto=auto -ffat-lto-objects)
  CFLAGS_ALL += -O2 $(LTO) -fno-plt -DMAYFLY_JEMALLOC=1
  LDFLAGS_ALL := -O2 $(if $(LTO),-flto=auto,-fno-lto) $(LDFLAGS)
  LIBS += -ljemalloc
else ifeq ($(SAN),address)
  CFLAGS_ALL += -O1 -DMAYFLY_FREE_AT_EXIT=1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
  LDFLAGS_ALL := -fsanitize=address,undefined $(LDFLAGS)
else
  CFLAGS_ALL += -O1 -DMAYFLY_FREE_AT_EXIT=1 -fsanitize=$(SAN) -fno-sanitize-recover=all
  LDFLAGS_ALL := -fsanitize=$(SAN) $(LDFLAGS)
endif

# The Raft library is a Rust crate. All builds share one copy, because sanitizers don't affect it.
RAFT_DIR  ?= build-raft
RAFT_LIB  := $(if $(filter no,$(RAFT)),,$(RAFT_DIR)/release/libmayfly_raft.a)
RAFT_SRC  := $(wildcard src/raft/core/Cargo.* src/raft/core/src/*.rs)
CFLAGS_ALL += -DMAYFLY_RAFT=$(if $(RAFT_LIB),1,0)
CARGO     ?= cargo

# Cluster mode needs the Raft library; without it cluster_none.c is built instead.
NONE_SRC    := src/cluster/cluster_none.c
CLUSTER_SRC := $(filter-out $(NONE_SRC),$(wildcard src/cluster/cluster*.c)) src/cluster/member.c src/cluster/merge_rules.c src/cluster/snapshot.c
RAFT_ONLY   := src/raft/% $(CLUSTER_SRC)
SRC      := $(filter-out $(if $(RAFT_LIB),$(NONE_SRC),$(RAFT_ONLY)),$(shell find src -name '*.c' | sort))
OBJ      := $(SRC:src/%.c=$(BUILD)/obj/%.o)
LIB_OBJ  := $(filter-out $(BUILD)/obj/main.o,$(OBJ))
TEST_SRC := $(wildcard tests/unit/test_*.c tests/engine/test_*.c tests/exec/test_*.c) \
            $(if $(RAFT_LIB),$(wildcard tests/raft/test_*.c))
TEST_BIN := $(TEST_SRC:tests/%.c=$(BUILD)/tests/%)
SUITES   := $(wildcard tests/engine/suite*.c)

.PHONY: all run test deps lint format bench fuzz soak install clean help unit server-tests oracle
.PHONY: client-tests clients layers uninstall test-programs check

all: $(BUILD)/mayfly-server

# Each target is described by the line `#: name  what it does` somewhere in this file.
help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile
	@echo 'Targets:'
	@sed -n 's/^#: /  /p' Makefile

#: all               build the server, at build/mayfly-server (what plain `make` does)
#: help              this text

# The Raft library comes first, because cargo takes long and need not have both processors.
$(BUILD)/mayfly-server: $(RAFT_LIB) $(OBJ)
	@echo '  LD   $@'
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(OBJ) $(RAFT_LIB) $(LIBS)

# Cargo runs only when a file of the crate has changed, and needs the network only for crates it has not fetched before.
# Without make's flags it does not take part in make's jobs: it would hold all of them, also while it uses one processor.
ifneq ($(RAFT_LIB),)
$(RAFT_LIB): $(RAFT_SRC)
	@echo '  CARGO $@'
	@command -v $(CARGO) >/dev/null || \
	    { echo 'cargo is missing: install it (scripts/deps) or build without Raft (make RAFT=no)' >&2; exit 1; }
	$(Q)env -u MAKEFLAGS -u MFLAGS $(CARGO) build --release --locked $(if $(V),,--quiet) \
	    --manifest-path src/raft/core/Cargo.toml --target-dir $(RAFT_DIR)
	@touch $@
endif

$(BUILD)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo '  CC   $<'
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/libmayfly.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJ)

# Tests link without link-time optimisation, which would take longer than running them.
TEST_LIB   := $(BUILD)/libmayfly.$(if $(SHARED),so,a)
TEST_FLAGS := -Og -g1 -fno-lto -Wno-missing-prototypes -Wno-array-bounds -Itests
$(BUILD)/libmayfly.so: $(LIB_OBJ) $(RAFT_LIB)
	@echo '  LD   $@'
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,$(@F) -o $@ $(LIB_OBJ) $(RAFT_LIB) $(LIBS)

$(BUILD)/tests/%: tests/%.c $(TEST_LIB) $(RAFT_LIB)
	@mkdir -p $(@D)
	@echo '  LD   $@'
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_FLAGS) -o $@ $(filter %.c %.o,$^) $(TEST_LIB) -Wl,-rpath,$(abspath $(BUILD)) \
	    $(if $(SHARED),,$(RAFT_LIB)) $(LDFLAGS_ALL) -fno-lto -Wl,--no-as-needed $(LIBS) -lcmocka

# The same suite runs on both engines.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/engine/test_*.c)): $(SUITES:%.c=$(BUILD)/%.o)
$(BUILD)/tests/engine/%.o: tests/engine/%.c Makefile
	@mkdir -p $(@D)
	@echo '  CC   $<'
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_FLAGS) -MMD -MP -c -o $@ $<
-include $(SUITES:%.c=$(BUILD)/%.d)

# The simulator compiles the Raft code itself, with bugs that can be switched on.
SIM     := $(if $(RAFT_LIB),$(BUILD)/tests/sim/sim)
SIM_SRC := $(wildcard tests/sim/*.c src/raft/*.c)
$(BUILD)/tests/sim/sim: $(SIM_SRC) $(wildcard tests/sim/*.h src/raft/*.h) $(BUILD)/libmayfly.a $(RAFT_LIB)
	@mkdir -p $(@D)
	@echo '  LD   $@'
	$(Q)$(CC) $(CFLAGS_ALL) -O2 -fno-lto -DMAYFLY_PLANT -Wno-missing-prototypes -Itests -o $@ $(SIM_SRC) $(BUILD)/libmayfly.a \
	    $(RAFT_LIB) $(LDFLAGS_ALL) -fno-lto $(LIBS)

-include $(OBJ:.o=.d)

#: deps              install the Debian packages that building and testing need
deps:
	$(Q)scripts/deps

#: run               install what is missing, build and start on PORT (6379), data in ./data
run:
	$(Q)scripts/deps run
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) all
	@mkdir -p data
	$(Q)$(BUILD)/mayfly-server --dir ./data --port $(PORT) --engine $(ENGINE)

#: cluster           … a cluster of three nodes, on PORT to PORT + 2, data in ./data/cluster
.PHONY: cluster
cluster:
	$(Q)scripts/deps run
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) all
	$(Q)scripts/cluster $(BUILD)/mayfly-server $(PORT) data/cluster

#: sites             … three active-active sites, on PORT to PORT + 2, data in ./data/sites
.PHONY: sites
sites:
	$(Q)scripts/deps run
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) all
	$(Q)scripts/sites $(BUILD)/mayfly-server $(PORT) data/sites

#: unit              unit, engine and exec tests, in C
unit: $(TEST_BIN)
	$(Q)scripts/run-unit $(TEST_BIN)

#: server-tests      tests over a socket, on ENGINE
# Compiled Python files are always kept: without them each process of pytest takes seconds to compile all tests.
TEST_ENV = MAYFLY_SERVER=$(abspath $(BUILD)/mayfly-server) MAYFLY_ENGINE=$(ENGINE) \
           PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath build-pycache)
# Server tests mostly wait, so several run at once, each with its own servers and ports.
TEST_JOBS ?= 3
SERVER_TESTS ?= tests/server
server-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -n $(TEST_JOBS) -p no:cacheprovider $(SERVER_TESTS)

#: io-threads-tests  some of the server tests, on servers with three I/O threads; part of soak, because some of these tests
#:                   rely on an order between connections that threads don't keep
IO_THREADS_TESTS := $(addprefix tests/server/test_,blocking.py client.py connections.py fence.py protocol.py pubsub.py \
                    scripting.py shutdown.py tls.py tracking.py)
.PHONY: io-threads-tests
io-threads-tests: $(BUILD)/mayfly-server
	$(Q)MAYFLY_IO_THREADS=3 $(MAKE_ONE) server-tests SERVER_TESTS='$(IO_THREADS_TESTS)'

#: sim               Raft groups in the simulator: SEEDS runs of SECONDS simulated seconds; it must find planted bugs
#: sim-soak          … longer, on all processors, from seed SEED on (MIX=regions: splits, merges, moves and deaths in each run)
.PHONY: sim sim-soak
SEED    ?= 1
SEEDS   ?= $(if $(filter site-soak,$(MAKECMDGOALS)),100000,$(if $(filter sim-soak,$(MAKECMDGOALS)),5000,200))
SECONDS ?= $(if $(filter sim-soak,$(MAKECMDGOALS)),600,300)
sim: $(SIM)
	$(Q)$(SIM) --seed $(SEED) --seeds $(SEEDS) --seconds $(SECONDS)
	$(Q)SEED=$(SEED) tests/sim/planted $(SIM)

#: rules-planted     break each rule of placement and of regions in turn: tests must find it. Minutes (ONLY=word)
.PHONY: rules-planted
rules-planted: $(BUILD)/libmayfly.a $(RAFT_LIB)
	$(Q)tests/raft/broken_rules.py --only '$(ONLY)' --compile '$(CC) $(CFLAGS_ALL) $(TEST_FLAGS)' \
	    --link '$(BUILD)/libmayfly.a $(RAFT_LIB) $(LDFLAGS_ALL) -fno-lto -Wl,--no-as-needed $(LIBS) -lcmocka'

#: site-model        the specification of active-active sites: its scenarios and random histories
.PHONY: site-model
site-model:
	$(Q)tests/site/model.py
	$(Q)tests/site/stress.py 500
	$(Q)tests/site/model.py --bugs 200 > /dev/null || tests/site/model.py --bugs 200

# The replay test compiles the site layer itself, with bugs that can be switched on.
REPLAY     := $(BUILD)/tests/site/replay
REPLAY_SRC := $(wildcard src/site/*.c) tests/site/replay.c
$(REPLAY): $(REPLAY_SRC) $(wildcard src/site/*.h) $(BUILD)/libmayfly.a $(RAFT_LIB)
	@mkdir -p $(@D)
	@echo '  LD   $@'
	$(Q)$(CC) $(CFLAGS_ALL) -O2 -fno-lto -DMAYFLY_PLANT -Wno-missing-prototypes -Itests -o $@ $(REPLAY_SRC) \
	    $(BUILD)/libmayfly.a $(RAFT_LIB) $(LDFLAGS_ALL) -fno-lto $(LIBS)

#: site-replay       the site layer replays histories of that specification on both engines, and must find planted bugs
#: site-soak         … SEEDS histories, from seed SEED on
.PHONY: site-replay site-soak
site-replay: $(REPLAY)
	$(Q)tests/site/replay.sh $(REPLAY) $(SEED) 200
site-soak: $(REPLAY)
	$(Q)seq $(SEED) 1000 $$(($(SEED) + $(SEEDS) - 1)) | xargs -P $(shell nproc) -I '{}' tests/site/replay.sh $(REPLAY) '{}' 1000

sim-soak: $(SIM)
	$(Q)seq $(SEED) 10 $$(($(SEED) + $(SEEDS) - 1)) | \
	    xargs -P $(shell nproc) -I '{}' $(SIM) --seed '{}' --seeds 10 --seconds $(SECONDS) $(if $(MIX),--$(MIX))

#: oracle            random commands to Mayfly and redis-server, whose replies must match (ORACLE_SEED, ORACLE_COMMANDS)
ORACLE_SEED     ?= 1
ORACLE_COMMANDS ?= 3000000
oracle: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) tests/oracle/run.py --server $(BUILD)/mayfly-server --engine $(ENGINE) --seed $(ORACLE_SEED) \
	    --commands $(ORACLE_COMMANDS) --resp both --skip-unknown

#: scenarios         several clients at once, compared with redis-server: who gets which reply, and when (SCENARIO_STEPS)
SCENARIO_STEPS ?= 3000
.PHONY: scenarios
scenarios: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) tests/scenarios/run.py --server $(BUILD)/mayfly-server --engine $(ENGINE) --steps $(SCENARIO_STEPS)

#: fault             kills, power cuts, full disks, damaged files: an hour (FAULT_ONLY, FAULT_SEED)
#: fault-short       … a few rounds of each
# On both engines. fault runs all rounds with random choices from FAULT_SEED; fault-short runs a few of each, with
# fixed choices. FAULT_ONLY=kill and the like selects tests.
.PHONY: fault fault-short
fault fault-short: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(if $(filter fault,$@),FAULT=full,FAULT_SEED=$(or $(FAULT_SEED),1)) $(PYTHON) -m pytest -q -rfEs \
	    $(if $(filter fault-short,$@),-n $(TEST_JOBS)) -p no:cacheprovider tests/fault \
	    $(if $(FAULT_ONLY),-k "$(FAULT_ONLY)")

#: replication       pairs and chains with redis-server: half an hour (REPL_ONLY, REPL_SEED)
#: replication-short … a few rounds of each
# Primaries and replicas are redis-server, and Mayfly on both engines, in any role. REPL_SEED and REPL_ONLY work as for
# fault.
.PHONY: replication replication-short
replication replication-short: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(if $(filter replication,$@),REPL=full,REPL_SEED=$(or $(REPL_SEED),1)) $(PYTHON) -m pytest -q -rfEs \
	    $(if $(filter replication-short,$@),-n $(TEST_JOBS)) -p no:cacheprovider tests/replication $(if $(REPL_ONLY),-k "$(REPL_ONLY)")

#: cluster-tests     clusters of several nodes, and the checker of their histories
.PHONY: cluster-tests
cluster-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -rfEs -n $(TEST_JOBS) -p no:cacheprovider tests/cluster

#: sites-tests       active-active sites as processes, on ENGINE
#: sites-soak        … three sites under load, with partitions and kill -9, for SOAK_MINUTES; they must converge.
#:                   SOAK_MACHINES=1 (root): in network namespaces, with one-way partitions, clocks that step, and
#:                   takeovers by a replica. SOAK_RATE: writes a second
.PHONY: sites-tests sites-soak
sites-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -rfEs -n $(TEST_JOBS) -p no:cacheprovider tests/sites

sites-soak: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) tests/sites/soak.py --minutes $(or $(SOAK_MINUTES),60) $(if $(SEED),--seed $(SEED)) \
		$(if $(SOAK_MACHINES),--machines) $(if $(SOAK_RATE),--rate $(SOAK_RATE))

#: cluster-large     a region with 1 GB (SPLIT_MB) must split itself, a node with 2 GB (DEAD_MB) must be replaced: minutes
.PHONY: cluster-large
cluster-large: $(BUILD)/mayfly-server
	$(Q)MAYFLY_SPLIT_MB=$(or $(SPLIT_MB),1024) $(TEST_ENV) $(PYTHON) -m pytest -q -rs -s -p no:cacheprovider \
		tests/cluster/test_autosplit.py -k default_limit
	$(Q)MAYFLY_DEAD_MB=$(or $(DEAD_MB),2048) $(TEST_ENV) $(PYTHON) -m pytest -q -rs -s -p no:cacheprovider \
		tests/cluster/test_dead_node.py

#: cluster-faults    real nodes × faults × workloads with checked histories: needs root, more than an hour (NODES, FAULTS, KINDS, OPS)
#: cluster-planted   … which must find bugs planted in the server
# NODES=3,5; FAULTS=partition,power…; KINDS=registers,counters…: the default is all. OPS: minimum number of operations of each.
.PHONY: cluster-faults cluster-planted
cluster-faults: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) tests/cluster/matrix.py --logs $(BUILD)/cluster-faults $(if $(NODES),--nodes $(NODES)) \
	    $(if $(FAULTS),--faults $(FAULTS)) $(if $(KINDS),--kinds $(KINDS)) $(if $(OPS),--ops $(OPS)) \
	    $(if $(FAULT_SEED),--seed $(FAULT_SEED))

cluster-planted:
	$(Q)$(MAKE_ALL) BUILD=build-planted CFLAGS=-DMAYFLY_PLANT all
	$(Q)MAYFLY_SERVER=$(abspath build-planted/mayfly-server) $(PYTHON) tests/cluster/planted.py $(if $(BUGS),--bugs $(BUGS))

#: leader-tests      server tests on the leader of a cluster of three nodes
#: leader-oracle     … and the oracle (ORACLE_SEED, ORACLE_COMMANDS)
#: leader-short      … a minute of both
# Only suites that make sense on a leader (not files, replicas, failing storage), without tests marked `lone`. After each
# test all nodes must have the same data.
.PHONY: leader-tests leader-oracle leader-short
LEADER_TESTS := $(patsubst %,tests/server/test_%.py,acl acl_revoked blocking client client_eviction debug dump events expiry \
                functions hash_ttl hostile long_scripts lua_libs multi newer old_scripts protocol pubsub scripting streams tracking)
LEADER_SHORT := $(addprefix tests/server/test_,multi.py tracking.py)
leader-tests: $(BUILD)/mayfly-server
	$(Q)$(MAKE_ONE) ENGINE=cluster server-tests SERVER_TESTS='$(LEADER_TESTS)'

leader-oracle: $(BUILD)/mayfly-server
	$(Q)$(MAKE_ONE) ENGINE=cluster oracle

leader-short: $(BUILD)/mayfly-server
	$(Q)$(MAKE_ONE) ENGINE=cluster server-tests oracle SERVER_TESTS='$(LEADER_SHORT)' ORACLE_COMMANDS=60000

MAKE_ALL := $(MAKE) --no-print-directory -j$(shell nproc)
MAKE_ONE := $(MAKE) --no-print-directory -j1

#: check             for use while you edit, below three minutes: build without LTO, layers, unit tests, smoke on both engines
#: smoke             a few server tests, on ENGINE
SMOKE := $(addprefix tests/server/test_,protocol.py hash_ttl.py multi.py)
.PHONY: smoke
check:
	$(Q)$(MAKE_ALL) BUILD=build-check all test-programs
	$(Q)$(MAKE_ONE) BUILD=build-check layers no-raft unit smoke
	$(Q)$(MAKE_ONE) BUILD=build-check ENGINE=rocksdb smoke

smoke: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -n $(TEST_JOBS) -p no:cacheprovider $(SMOKE)

#: test              all suites, on both engines, plain and under ASan + UBSan, and threads under TSan
#: test-units        … without sanitizers: unit tests, models, the simulator, clusters
#: test-servers      … without sanitizers: suites on a server, faults, replication
#: test-address      … the suites under ASan and UBSan
#: test-thread       … the tests under TSan
#: test-programs     build the tests in C, without running them
#: thread-programs   build the programs of test-thread (SAN=thread)
#: thread-tests      … and run them
# Three jobs run side by side, because tests mostly wait (two jobs left two cores idle more than half of the time). For the
# same reason the sanitizer builds are made while plain suites run already. The plain build has no LTO, whose link takes as
# long as a suite; soak tests the LTO build.
.PHONY: test-units test-servers test-address test-thread thread-tests
PLAIN := $(MAKE_ONE) BUILD=build-check
test: deps
	$(Q)$(MAKE_ALL) BUILD=build-check all test-programs
	$(Q)scripts/side-by-side units '$(PLAIN) test-units && $(MAKE_ONE) test-thread' servers '$(PLAIN) test-servers' \
	    asan '$(MAKE_ONE) test-address'
	@echo 'all tests passed'

test-units:
	$(Q)$(MAKE_ONE) layers check-docs no-raft unit site-model site-replay $(if $(SIM),sim cluster-tests leader-short)

test-servers:
	$(Q)$(MAKE_ONE) server-tests client-tests oracle scenarios ORACLE_COMMANDS=500000
	$(Q)$(MAKE_ONE) fault-short replication-short sites-tests
	$(Q)$(MAKE_ONE) ENGINE=rocksdb server-tests client-tests sites-tests oracle scenarios ORACLE_COMMANDS=400000

# Tests that depend on RocksDB. The others run on RocksDB without ASan and in memory with ASan; soak runs them with both.
ON_DISK := $(patsubst %,tests/server/test_%.py,aof_expiry blocking clock_steps dump events eviction expiry hash_ttl \
           hostile interchange migrate multi persistence primary replica replica_stream rocks shutdown streams \
           sync_loading waitaof)
test-address:
	$(Q)$(MAKE_ALL) SAN=address all test-programs
	$(Q)$(MAKE_ONE) SAN=address unit server-tests client-tests oracle scenarios ORACLE_COMMANDS=300000
	$(Q)$(MAKE_ONE) SAN=address ENGINE=rocksdb server-tests oracle scenarios SERVER_TESTS='$(ON_DISK)' \
	    ORACLE_COMMANDS=100000 SCENARIO_STEPS=1000

# The simulator comes first, because it takes longest. It and the replay test run without sanitizers only.
test-programs: $(if $(SAN),,$(SIM) $(REPLAY)) $(TEST_BIN)

# Threads read and write connections, write and sync files, make snapshots, have sessions and regions of one RocksDB, write
# the Raft log, run RocksDB's background work and answer scrapes.
THREAD_UNIT   := $(addprefix $(BUILD)/tests/unit/test_,gate cache_budget disk_file aof_disk saver_rocks rocks_store \
                 rocks_sessions rocks_regions) \
                 $(if $(RAFT_LIB),$(BUILD)/tests/raft/test_cluster_log)
THREAD_SERVER := $(addprefix tests/server/test_,io_threads.py metrics.py waitaof.py persistence.py rocks.py)
THREAD_ONLY   := told or overdue or silent or local_disk or bgsave or one_moment or restart_after or on_and_off or \
                 automatic or swapped or sync_modes or cleaner_counters or reads_leave or io_threads
.PHONY: thread-programs
thread-programs: $(BUILD)/mayfly-server $(THREAD_UNIT)

test-thread:
	$(Q)$(MAKE_ALL) SAN=thread thread-programs
	$(Q)scripts/tsan build-thread/mayfly-server $(MAKE_ONE) SAN=thread thread-tests

thread-tests: thread-programs
	$(Q)scripts/run-unit $(THREAD_UNIT)
	$(Q)for engine in memory rocksdb; do \
	    $(TEST_ENV) MAYFLY_ENGINE=$$engine $(PYTHON) -m pytest -q -n $(TEST_JOBS) -p no:cacheprovider $(THREAD_SERVER) \
	        -k "$(THREAD_ONLY)" || exit 1; \
	done

#: bench             measure beside redis-server: BENCH="--quick --only cpu,storm", BENCH=--bars
bench: $(BUILD)/mayfly-server
	$(Q)scripts/deps all
	$(Q)$(PYTHON) bench/run.py --server $(BUILD)/mayfly-server $(BENCH)

#: client-tests      clients and applications from Debian
#: clients           … and from npm, and cluster clients for Node, Go and Java
CLIENT_TESTS := $(PYTHON) -m pytest -q -rfEs -p no:cacheprovider tests/clients
client-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(CLIENT_TESTS) --ignore=tests/clients/test_node.py --ignore=tests/clients/test_cluster_clients.py

clients: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(CLIENT_TESTS)

#: layers            check that files include lower layers only, and that these read no clocks and have no mutable globals
layers: $(OBJ)
	$(Q)scripts/check-layers --self-test
	$(Q)scripts/check-layers --quiet --objects $(BUILD)/obj

#: no-raft           check that the server links without the Raft library (RAFT=no)
# Nearly all objects exist already and the program is only linked, so this takes a second.
.PHONY: no-raft
no-raft: $(OBJ) $(NONE_SRC:src/%.c=$(BUILD)/obj/%.o)
	$(Q)$(CC) $(LDFLAGS_ALL) -fno-lto -o $(BUILD)/no-raft $(filter-out $(RAFT_ONLY:src/%.c=$(BUILD)/obj/%.o) \
	    $(BUILD)/obj/raft/%,$^) $(LIBS)
	$(Q)rm $(BUILD)/no-raft

#: check-docs        check the links in the documents, and the files and functions that they name
.PHONY: check-docs
check-docs:
	$(Q)scripts/check-docs

#: lint              layers, cppcheck and clang-tidy (.clang-tidy)
#: tidy              … only clang-tidy
lint: $(OBJ)
	$(Q)scripts/lint $(BUILD)
	$(Q)$(MAKE_ALL) BUILD=$(BUILD) tidy
	@echo 'clang-tidy: nothing found'

# Objects depend on their source and headers, so only changed files are checked again.
CLANG_TIDY ?= clang-tidy
.PHONY: tidy
tidy: $(SRC:src/%.c=$(BUILD)/tidy/%.ok)
$(BUILD)/tidy/%.ok: $(BUILD)/obj/%.o .clang-tidy
	@mkdir -p $(@D)
	@echo '  TIDY src/$*.c'
	$(Q)$(CLANG_TIDY) --quiet src/$*.c -- -std=gnu11 -D_GNU_SOURCE -Isrc -DMAYFLY_JEMALLOC=1 \
	    -DMAYFLY_RAFT=$(if $(RAFT_LIB),1,0) $(LUA) 2>$@.err || { cat $@.err; rm -f $@.err; exit 1; }
	@rm -f $@.err && touch $@

#: format            clang-format the lines changed since the last commit (ALL=1: everything, including tables laid out by hand)
format:
	$(Q)$(if $(ALL),find src tests -name '*.[ch]' -print0 | xargs -0 clang-format -i,\
	    git clang-format --force --extensions c,h HEAD -- src tests)

#: soak              the long form of test, with LTO, then the oracle with new seeds for SOAK_MINUTES, plain and sanitized
# First the whole oracle run of which test runs a part, the server tests on both engines, with LTO and with sanitizers, and
# the tests in C with all rounds.
SOAK_MINUTES ?= 30
SOAK_OPTIONS ?= --skip-unknown --engine $(ENGINE)
soak: $(BUILD)/mayfly-server
	$(Q)$(MAKE) --no-print-directory oracle server-tests client-tests io-threads-tests
	$(Q)$(MAKE) --no-print-directory ENGINE=rocksdb oracle server-tests
	$(Q)$(MAKE) --no-print-directory SAN=address BUILD=$(BUILD)-address server-tests client-tests
	$(Q)$(MAKE) --no-print-directory SAN=address BUILD=$(BUILD)-address ENGINE=rocksdb server-tests
	$(Q)$(MAKE) --no-print-directory BUILD=build-rounds CFLAGS=-DMAYFLY_ALL_ROUNDS unit
	$(Q)$(MAKE) --no-print-directory SAN=address BUILD=build-rounds-address CFLAGS=-DMAYFLY_ALL_ROUNDS unit
	$(Q)SOAK_MINUTES=$(SOAK_MINUTES) SOAK_OPTIONS="$(SOAK_OPTIONS)" PYTHON=$(PYTHON) \
	    scripts/soak $(BUILD)/mayfly-server $(BUILD)-address/mayfly-server

#: fuzz              libFuzzer for FUZZ_SECONDS each on the request parser, commands, RDB and AOF files
# The corpus is kept in $(FUZZ)/corpus-*, crashes are in $(FUZZ)/crash-*: repeat one with $(FUZZ)/fuzz_x $(FUZZ)/crash-y.
# (pointer-overflow: clang reports NULL + 0, which an empty slice may compute and C2y defines.)
FUZZ         := build-fuzz
FUZZ_SECONDS ?= 120
FUZZ_SAN     := address,undefined -fno-sanitize=pointer-overflow
FUZZ_FLAGS   := -D__SANITIZE_ADDRESS__=1 -Wno-unknown-warning-option -Wno-error
FUZZ_RUN      = -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=1024 -artifact_prefix=$(FUZZ)/ \
                -verbosity=0 -print_funcs=0 -print_final_stats=1
fuzz: export ASAN_OPTIONS = quarantine_size_mb=32
fuzz:
	$(Q)scripts/deps all
	$(Q)$(MAKE) --no-print-directory BUILD=$(FUZZ) CC=clang SAN="fuzzer-no-link,$(FUZZ_SAN)" CFLAGS="$(FUZZ_FLAGS)" \
	    $(FUZZ)/fuzz_request $(FUZZ)/fuzz_command $(FUZZ)/fuzz_rdb $(FUZZ)/fuzz_aof
	@mkdir -p $(FUZZ)/corpus-request $(FUZZ)/corpus-command $(FUZZ)/corpus-rdb $(FUZZ)/corpus-aof
	$(Q)sed -n 's/^[A-Z]*("\([^"|]*\)".*/"\1"/p' src/command/table.def > $(FUZZ)/command.dict
	@echo '  FUZZ requests, $(FUZZ_SECONDS) s'
	$(Q)$(FUZZ)/fuzz_request $(FUZZ_RUN) -max_len=4096 $(FUZZ)/corpus-request tests/fuzz/corpus/request
	@echo '  FUZZ commands, $(FUZZ_SECONDS) s'
	$(Q)$(FUZZ)/fuzz_command $(FUZZ_RUN) -max_len=8192 -dict=$(FUZZ)/command.dict $(FUZZ)/corpus-command \
	    tests/fuzz/corpus/command
	@echo '  FUZZ loading, $(FUZZ_SECONDS) s'
	$(Q)$(FUZZ)/fuzz_rdb $(FUZZ_RUN) -max_len=4096 $(FUZZ)/corpus-rdb tests/fuzz/corpus/rdb
	@echo '  FUZZ append-only files, $(FUZZ_SECONDS) s'
	$(Q)$(FUZZ)/fuzz_aof $(FUZZ_RUN) -max_len=4096 -dict=$(FUZZ)/command.dict $(FUZZ)/corpus-aof tests/fuzz/corpus/aof

$(FUZZ)/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ)/libmayfly.a $(RAFT_LIB) $(wildcard tests/exec/*.h tests/unit/*.h)
	@echo '  LD   $@'
	$(Q)$(CC) $(CFLAGS_ALL) -fsanitize=fuzzer,$(FUZZ_SAN) -o $@ $< $(FUZZ)/libmayfly.a $(RAFT_LIB) $(LIBS)

#: install           install below PREFIX (/usr/local): program, configuration, documentation, unit for systemd
#: uninstall         … and remove it; a changed configuration is kept
# An existing configuration is kept, because it may have been changed.
BIN_DIR := $(DESTDIR)$(PREFIX)/bin
ETC_DIR := $(DESTDIR)$(PREFIX)/etc
DOC_DIR := $(DESTDIR)$(PREFIX)/share/doc/mayfly
MAN_DIR := $(DESTDIR)$(PREFIX)/share/man/man1
UNIT    := $(DESTDIR)$(PREFIX)/lib/systemd/system/mayfly-server.service
install: $(BUILD)/mayfly-server
	install -D -m 755 $(BUILD)/mayfly-server $(BIN_DIR)/mayfly-server
	install -d $(DOC_DIR)/docs/decisions
	install -m 644 README.md CHANGELOG.md LICENSE mayfly.conf $(DOC_DIR)
	install -m 644 docs/*.* $(DOC_DIR)/docs
	install -m 644 docs/decisions/* $(DOC_DIR)/docs/decisions
	install -D -m 644 docs/man/mayfly-server.1 $(MAN_DIR)/mayfly-server.1
	[ -e $(ETC_DIR)/mayfly.conf ] || install -D -m 644 mayfly.conf $(ETC_DIR)/mayfly.conf
	sed 's|@PREFIX@|$(PREFIX)|g' scripts/mayfly-server.service | install -D -m 644 /dev/stdin $(UNIT)

uninstall:
	if cmp -s $(ETC_DIR)/mayfly.conf $(DOC_DIR)/mayfly.conf; then rm -f $(ETC_DIR)/mayfly.conf; fi
	rm -rf $(BIN_DIR)/mayfly-server $(DOC_DIR) $(UNIT) $(MAN_DIR)/mayfly-server.1

#: demo              expire a million keys (KEYS) beside redis-server, both latencies drawn live
.PHONY: demo
KEYS ?= 1000000
demo: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) bench/demo.py --keys $(KEYS) --server $(BUILD)/mayfly-server

#: deb               a Debian package of the server, in build/deb, for the Debian release it is built on
.PHONY: deb
deb: $(BUILD)/mayfly-server
	$(Q)scripts/deb $(BUILD)/mayfly-server $(BUILD)/deb

#: clean             remove all build directories
clean:
	rm -rf build build-check build-planted build-rounds build-address build-rounds-address build-undefined build-thread \
	    build-fuzz build-pycache $(RAFT_DIR)
