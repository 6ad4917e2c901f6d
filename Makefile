# Mayfly. `make run` and `make test` are all a newcomer needs; `make help` lists the rest.
#
#   BUILD=dir      where to build (default: build, or build-SAN with SAN)
#   SAN=address    sanitizer build: address (with undefined), undefined, or thread
#   RAFT=no        build without the Raft library, for which cargo is needed: no cluster mode then
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

# Where make test builds all test programs, they share a library: linking takes a tenth of the time that as many copies take.
SHARED := $(if $(filter address,$(SAN))$(filter build-check,$(BUILD)),yes)
ifneq ($(SHARED),)
  CFLAGS_ALL += -fPIC -fno-semantic-interposition
endif
ifeq ($(SAN),)
  # Link-time optimisation is for what is run, not for what is tried: BUILD=elsewhere links in a second.
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

# The Raft library is a crate. Its folder is shared by all builds: a sanitizer changes nothing about it.
RAFT_DIR  ?= build-raft
RAFT_LIB  := $(if $(filter no,$(RAFT)),,$(RAFT_DIR)/release/libmayfly_raft.a)
RAFT_SRC  := $(wildcard src/raft/core/Cargo.* src/raft/core/src/*.rs)
CFLAGS_ALL += -DMAYFLY_RAFT=$(if $(RAFT_LIB),1,0)
CARGO     ?= cargo

# Cluster mode stands on the Raft library; without it cluster_none.c takes its place.
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

$(BUILD)/mayfly-server: $(OBJ) $(RAFT_LIB)
	@echo '  LD   $@'
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(OBJ) $(RAFT_LIB) $(LIBS)

# Cargo runs only when a file of the crate changed, and needs the network only for crates it has not fetched before.
ifneq ($(RAFT_LIB),)
$(RAFT_LIB): $(RAFT_SRC)
	@echo '  CARGO $@'
	@command -v $(CARGO) >/dev/null || \
	    { echo 'cargo is missing: install it (scripts/deps) or build without Raft (make RAFT=no)' >&2; exit 1; }
	$(Q)$(CARGO) build --release --locked $(if $(V),,--quiet) --manifest-path src/raft/core/Cargo.toml --target-dir $(RAFT_DIR)
	@touch $@
endif

$(BUILD)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo '  CC   $<'
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/libmayfly.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJ)

# Tests use the machine code in the objects: link-time optimisation would take longer than they do.
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

# Both engines run one suite.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/engine/test_*.c)): $(SUITES:%.c=$(BUILD)/%.o)
$(BUILD)/tests/engine/%.o: tests/engine/%.c Makefile
	@mkdir -p $(@D)
	@echo '  CC   $<'
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_FLAGS) -MMD -MP -c -o $@ $<
-include $(SUITES:%.c=$(BUILD)/%.d)

# The simulator has its own copy of the group's code, in which bugs can be planted.
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

#: cluster           … a cluster of three nodes, on PORT and the two after it, data in ./data/cluster
.PHONY: cluster
cluster:
	$(Q)scripts/deps run
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) all
	$(Q)scripts/cluster $(BUILD)/mayfly-server $(PORT) data/cluster

#: sites             three sites of active-active replication, on PORT and the two after it, data in ./data/sites
.PHONY: sites
sites:
	$(Q)scripts/deps run
	$(Q)$(MAKE) --no-print-directory -j$(shell nproc) all
	$(Q)scripts/sites $(BUILD)/mayfly-server $(PORT) data/sites

#: unit              unit, engine and exec tests, in C
unit: $(TEST_BIN)
	$(Q)scripts/run-unit $(TEST_BIN)

#: server-tests      tests over a socket, on ENGINE
# Compiled Python is kept, wherever the environment says it should not be: pytest takes seconds to compile all tests, in
# each of its processes.
TEST_ENV = MAYFLY_SERVER=$(abspath $(BUILD)/mayfly-server) MAYFLY_ENGINE=$(ENGINE) \
           PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath build-pycache)
# Server tests mostly wait for a server, so several run at once, each with servers and ports of its own.
TEST_JOBS ?= 3
SERVER_TESTS ?= tests/server
server-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -n $(TEST_JOBS) -p no:cacheprovider $(SERVER_TESTS)

#: io-threads-tests  a part of the server tests, with three I/O threads in every server; in soak, because some of these tests
#:                   rely on an order between connections that threads don't keep
IO_THREADS_TESTS := $(addprefix tests/server/test_,blocking.py client.py connections.py fence.py protocol.py pubsub.py \
                    scripting.py shutdown.py tls.py tracking.py)
.PHONY: io-threads-tests
io-threads-tests: $(BUILD)/mayfly-server
	$(Q)MAYFLY_IO_THREADS=3 $(MAKE_ONE) server-tests SERVER_TESTS='$(IO_THREADS_TESTS)'

#: sim               a Raft group in the simulator: SEEDS times SECONDS, and planted bugs must be found
#: sim-soak          the same for long: as many processes as processors, SEEDS from SEED
.PHONY: sim sim-soak
SEED    ?= 1
SEEDS   ?= $(if $(filter site-soak,$(MAKECMDGOALS)),100000,$(if $(filter sim-soak,$(MAKECMDGOALS)),5000,200))
SECONDS ?= $(if $(filter sim-soak,$(MAKECMDGOALS)),600,300)
sim: $(SIM)
	$(Q)$(SIM) --seed $(SEED) --seeds $(SEEDS) --seconds $(SECONDS)
	$(Q)SEED=$(SEED) tests/sim/planted $(SIM)

#: site-model        the specification of active-active replication: its scenarios and random histories
.PHONY: site-model
site-model:
	$(Q)tests/site/model.py
	$(Q)tests/site/stress.py 500
	$(Q)tests/site/model.py --bugs 200 > /dev/null || tests/site/model.py --bugs 200

# Its own copy of the site layer, in which bugs can be planted.
REPLAY     := $(BUILD)/tests/site/replay
REPLAY_SRC := $(wildcard src/site/*.c) tests/site/replay.c
$(REPLAY): $(REPLAY_SRC) $(wildcard src/site/*.h) $(BUILD)/libmayfly.a $(RAFT_LIB)
	@mkdir -p $(@D)
	@echo '  LD   $@'
	$(Q)$(CC) $(CFLAGS_ALL) -O2 -fno-lto -DMAYFLY_PLANT -Wno-missing-prototypes -Itests -o $@ $(REPLAY_SRC) \
	    $(BUILD)/libmayfly.a $(RAFT_LIB) $(LDFLAGS_ALL) -fno-lto $(LIBS)

#: site-replay       the site layer follows histories of that specification on both engines, and finds planted bugs
#: site-soak         the same for long: SEEDS histories from SEED
.PHONY: site-replay site-soak
site-replay: $(REPLAY)
	$(Q)tests/site/replay.sh $(REPLAY) $(SEED) 200
site-soak: $(REPLAY)
	$(Q)seq $(SEED) 1000 $$(($(SEED) + $(SEEDS) - 1)) | xargs -P $(shell nproc) -I '{}' tests/site/replay.sh $(REPLAY) '{}' 1000

sim-soak: $(SIM)
	$(Q)seq $(SEED) 10 $$(($(SEED) + $(SEEDS) - 1)) | \
	    xargs -P $(shell nproc) -I '{}' $(SIM) --seed '{}' --seeds 10 --seconds $(SECONDS)

#: oracle            random commands to Mayfly and redis-server, replies compared (ORACLE_SEED, ORACLE_COMMANDS)
# The same random commands to Mayfly and to redis-server; replies must match.
ORACLE_SEED     ?= 1
ORACLE_COMMANDS ?= 3000000
oracle: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) tests/oracle/run.py --server $(BUILD)/mayfly-server --engine $(ENGINE) --seed $(ORACLE_SEED) \
	    --commands $(ORACLE_COMMANDS) --resp both --skip-unknown

#: scenarios         conversations of several clients, beside redis-server (SCENARIO_STEPS)
# Clients that take turns (blocking, …), on Mayfly and on redis-server: which client gets which reply, and when.
SCENARIO_STEPS ?= 3000
.PHONY: scenarios
scenarios: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) tests/scenarios/run.py --server $(BUILD)/mayfly-server --engine $(ENGINE) --steps $(SCENARIO_STEPS)

#: fault             kills, power cuts, full disks, damaged files: an hour (FAULT_ONLY, FAULT_SEED)
#: fault-short       a few rounds of each
# Crashes, power cuts, full disks, damaged files, of both engines (the tests say which). fault: every round,
# an hour, with random choices of its own (FAULT_SEED); fault-short: a few of each, always the same choices.
# FAULT_ONLY=kill and the like picks some.
.PHONY: fault fault-short
fault fault-short: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(if $(filter fault,$@),FAULT=full,FAULT_SEED=$(or $(FAULT_SEED),1)) $(PYTHON) -m pytest -q -rfEs \
	    $(if $(filter fault-short,$@),-n $(TEST_JOBS)) -p no:cacheprovider tests/fault \
	    $(if $(FAULT_ONLY),-k "$(FAULT_ONLY)")

#: replication       pairs and chains with redis-server: half an hour (REPL_ONLY, REPL_SEED)
#: replication-short a few rounds of each
# Primaries and replicas: redis-server, and Mayfly on both engines, in any role. replication: all rounds on all
# pairs, half an hour; replication-short: a few. Seeds (REPL_SEED) as of faults; REPL_ONLY=expiry and the like
# picks some.
.PHONY: replication replication-short
replication replication-short: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(if $(filter replication,$@),REPL=full,REPL_SEED=$(or $(REPL_SEED),1)) $(PYTHON) -m pytest -q -rfEs \
	    $(if $(filter replication-short,$@),-n $(TEST_JOBS)) -p no:cacheprovider tests/replication $(if $(REPL_ONLY),-k "$(REPL_ONLY)")

#: cluster-tests     clusters of several nodes, and the checker of histories they are judged by
.PHONY: cluster-tests
cluster-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -rfEs -n $(TEST_JOBS) -p no:cacheprovider tests/cluster

#: sites-tests       sites of active-active replication, as processes, on ENGINE
#: sites-soak        … three of them under load with partitions and kill -9 for SOAK_MINUTES; in the end all have the same
.PHONY: sites-tests sites-soak
sites-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -rfEs -n $(TEST_JOBS) -p no:cacheprovider tests/sites

sites-soak: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) tests/sites/soak.py --minutes $(or $(SOAK_MINUTES),60) $(if $(SEED),--seed $(SEED))

#: cluster-large     a region that gets 1 GB splits itself (SPLIT_MB): minutes
.PHONY: cluster-large
cluster-large: $(BUILD)/mayfly-server
	$(Q)MAYFLY_SPLIT_MB=$(or $(SPLIT_MB),1024) $(TEST_ENV) $(PYTHON) -m pytest -q -rs -s -p no:cacheprovider \
		tests/cluster/test_autosplit.py -k default_limit

#: cluster-faults    real nodes × faults × kinds of work, every history checked: root, an hour and more (NODES, FAULTS, KINDS, OPS)
#: cluster-planted   … and bugs planted in the server must be found by it
# NODES=3,5; FAULTS=partition,power…; KINDS=registers,counters…: all of them if not given. OPS: operations of each, at least.
.PHONY: cluster-faults cluster-planted
cluster-faults: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) tests/cluster/matrix.py --logs $(BUILD)/cluster-faults $(if $(NODES),--nodes $(NODES)) \
	    $(if $(FAULTS),--faults $(FAULTS)) $(if $(KINDS),--kinds $(KINDS)) $(if $(OPS),--ops $(OPS)) \
	    $(if $(FAULT_SEED),--seed $(FAULT_SEED))

cluster-planted:
	$(Q)$(MAKE_ALL) BUILD=build-planted CFLAGS=-DMAYFLY_PLANT all
	$(Q)MAYFLY_SERVER=$(abspath build-planted/mayfly-server) $(PYTHON) tests/cluster/planted.py $(if $(BUGS),--bugs $(BUGS))

#: leader-tests      what works on a lone server works on a leader: the server tests on the leader of three nodes
#: leader-oracle     … and the oracle (ORACLE_SEED, ORACLE_COMMANDS)
#: leader-short      a part of both, a minute
# Suites of what a leader does, too: not files, replicas, storage that fails. Tests within them that make no sense there are
# marked `lone`. After each test all nodes have to have the same data.
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

#: check             the inner loop, below three minutes: build without LTO, layers, unit tests, both engines briefly
#: smoke             … the part of the server tests in it, on ENGINE
SMOKE := $(addprefix tests/server/test_,protocol.py hash_ttl.py multi.py)
.PHONY: smoke
check:
	$(Q)$(MAKE_ALL) BUILD=build-check all test-programs
	$(Q)$(MAKE_ONE) BUILD=build-check layers no-raft unit smoke
	$(Q)$(MAKE_ONE) BUILD=build-check ENGINE=rocksdb smoke

smoke: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(PYTHON) -m pytest -q -n $(TEST_JOBS) -p no:cacheprovider $(SMOKE)

#: test              everything that must pass, on both engines, plain and under ASan + UBSan, and threads under TSan
#: test-units        … without sanitizers: unit tests, models, the simulator, clusters
#: test-servers      … without sanitizers: suites on a server, faults, replication
#: test-address      … the part with ASan and UBSan
#: test-thread       … the part with TSan
#: test-programs     build the tests in C, without running them
#: thread-programs   build what test-thread runs (SAN=thread)
#: thread-tests      run it
# Everything that must pass, on both engines, plain and under ASan and UBSan, and what has threads under TSan: three lines
# side by side, because tests mostly wait (two lines left two cores idle more than half of the time). The plain build is that
# of check: what ships is the same code with LTO, whose link takes as long as a suite; soak tests that.
.PHONY: test-units test-servers test-address test-thread thread-tests
PLAIN := $(MAKE_ONE) BUILD=build-check
test: deps
	$(Q)$(MAKE_ALL) BUILD=build-check all test-programs
	$(Q)$(MAKE_ALL) SAN=address all test-programs
	$(Q)$(MAKE_ALL) SAN=thread thread-programs
	$(Q)scripts/side-by-side units '$(PLAIN) test-units && $(MAKE_ONE) test-thread' servers '$(PLAIN) test-servers' \
	    asan '$(MAKE_ONE) test-address'
	@echo 'all tests passed'

test-units:
	$(Q)$(MAKE_ONE) layers check-docs no-raft unit site-model site-replay $(if $(SIM),sim cluster-tests leader-short)

test-servers:
	$(Q)$(MAKE_ONE) server-tests client-tests oracle scenarios ORACLE_COMMANDS=500000
	$(Q)$(MAKE_ONE) fault-short replication-short sites-tests
	$(Q)$(MAKE_ONE) ENGINE=rocksdb server-tests client-tests sites-tests oracle scenarios ORACLE_COMMANDS=400000

# What RocksDB has a part in. All else runs on RocksDB without ASan, under ASan in memory, and in soak with both.
ON_DISK := $(patsubst %,tests/server/test_%.py,aof_expiry blocking clock_steps dump events eviction expiry hash_ttl \
           hostile interchange migrate multi persistence primary replica replica_stream rocks shutdown streams \
           sync_loading waitaof)
test-address:
	$(Q)$(MAKE_ONE) SAN=address unit server-tests client-tests oracle scenarios ORACLE_COMMANDS=300000
	$(Q)$(MAKE_ONE) SAN=address ENGINE=rocksdb server-tests oracle scenarios SERVER_TESTS='$(ON_DISK)' \
	    ORACLE_COMMANDS=100000 SCENARIO_STEPS=1000

test-programs: $(TEST_BIN) $(SIM) $(REPLAY)

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
# Side by side with redis-server; BENCH="--quick --only cpu,storm" and the like.
bench: $(BUILD)/mayfly-server
	$(Q)scripts/deps all
	$(Q)$(PYTHON) bench/run.py --server $(BUILD)/mayfly-server $(BENCH)

#: client-tests      clients and applications that Debian has
#: clients           … and those of npm, and cluster clients of Node, Go and Java
# Real clients, as a newcomer uses them. client-tests: those Debian has; clients: those of npm, Go and Maven, too.
CLIENT_TESTS := $(PYTHON) -m pytest -q -rfEs -p no:cacheprovider tests/clients
client-tests: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(CLIENT_TESTS) --ignore=tests/clients/test_node.py --ignore=tests/clients/test_cluster_clients.py

clients: $(BUILD)/mayfly-server
	$(Q)$(TEST_ENV) $(CLIENT_TESTS)

#: layers            check that includes go downward only, and that nothing reads a clock it should not
# Layering, clocks, globals: fast enough to be a part of every test run.
layers: $(OBJ)
	$(Q)scripts/check-layers --self-test
	$(Q)scripts/check-layers --quiet --objects $(BUILD)/obj

#: no-raft           check that the server links without the Raft library (RAFT=no)
# All objects but those of RAFT=no are there already. The program is only linked, so this takes a second.
.PHONY: no-raft
no-raft: $(OBJ) $(NONE_SRC:src/%.c=$(BUILD)/obj/%.o)
	$(Q)$(CC) $(LDFLAGS_ALL) -fno-lto -o $(BUILD)/no-raft $(filter-out $(RAFT_ONLY:src/%.c=$(BUILD)/obj/%.o) \
	    $(BUILD)/obj/raft/%,$^) $(LIBS)
	$(Q)rm $(BUILD)/no-raft

#: check-docs        check that the links of the documents lead somewhere
.PHONY: check-docs
check-docs:
	$(Q)scripts/check-docs

#: lint              layers, cppcheck and clang-tidy (.clang-tidy)
#: tidy              … only clang-tidy
lint: $(OBJ)
	$(Q)scripts/lint $(BUILD)
	$(Q)$(MAKE_ALL) BUILD=$(BUILD) tidy
	@echo 'clang-tidy: nothing found'

# An object is newer than its source and all headers it includes, so only what has changed is looked at again.
CLANG_TIDY ?= clang-tidy
.PHONY: tidy
tidy: $(SRC:src/%.c=$(BUILD)/tidy/%.ok)
$(BUILD)/tidy/%.ok: $(BUILD)/obj/%.o .clang-tidy
	@mkdir -p $(@D)
	@echo '  TIDY src/$*.c'
	$(Q)$(CLANG_TIDY) --quiet src/$*.c -- -std=gnu11 -D_GNU_SOURCE -Isrc -DMAYFLY_JEMALLOC=1 \
	    -DMAYFLY_RAFT=$(if $(RAFT_LIB),1,0) $(LUA) 2>$@.err || { cat $@.err; rm -f $@.err; exit 1; }
	@rm -f $@.err && touch $@

#: format            clang-format the lines changed since the last commit (ALL=1: everything)
# The lines changed since the last commit; with ALL=1 the whole tree, which spreads out hand-made tables.
format:
	$(Q)$(if $(ALL),find src tests -name '*.[ch]' -print0 | xargs -0 clang-format -i,\
	    git clang-format --force --extensions c,h HEAD -- src tests)

#: soak              all that test has a part of, then the oracle on fresh seeds for SOAK_MINUTES, plain and sanitized
# Fresh seeds for SOAK_MINUTES, plain and sanitized. First all of the seed of which test runs a part, and the server
# tests, on both engines, with what ships and in the sanitizer build, and the tests in C with all rounds.
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

#: fuzz              libFuzzer for FUZZ_SECONDS on the parser, commands, RDB and AOF files
# libFuzzer for FUZZ_SECONDS on each target. What it learns stays in $(FUZZ)/corpus-*, what it breaks
# in $(FUZZ)/crash-*; a crash is run again with $(FUZZ)/fuzz_x $(FUZZ)/crash-y.
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
#: uninstall         … and take it away; a configuration that was changed stays
# A configuration that is there stays: it may have been changed.
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

#: demo              a million keys expire beside redis-server, both latencies drawn live (KEYS)
.PHONY: demo
KEYS ?= 1000000
demo: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) bench/demo.py --keys $(KEYS) --server $(BUILD)/mayfly-server

#: deb               a Debian package of the server, in build/deb (Debian 12 or 13, whichever it is built on)
.PHONY: deb
deb: $(BUILD)/mayfly-server
	$(Q)scripts/deb $(BUILD)/mayfly-server $(BUILD)/deb

#: clean             remove all build directories
clean:
	rm -rf build build-check build-planted build-rounds build-address build-rounds-address build-undefined build-thread \
	    build-fuzz build-pycache $(RAFT_DIR)
