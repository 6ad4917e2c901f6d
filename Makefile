# Mayfly. `make run` and `make test` are all a newcomer needs; `make help` lists the rest.
#
#   BUILD=dir      where to build (default: build, or build-SAN with SAN)
#   SAN=address    sanitizer build: address (with undefined), undefined, or thread
#   V=1            show the commands

SAN     ?=
BUILD   ?= build$(if $(SAN),-$(SAN))
CC      ?= gcc
PYTHON  ?= /usr/bin/python3
PREFIX  ?= /usr/local
PORT    ?= 6379
Q       := $(if $(V),,@)

CFLAGS_ALL := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wshadow=local -Wstrict-prototypes -Wmissing-prototypes \
              -Wno-missing-field-initializers -Isrc -g -fno-omit-frame-pointer -fno-strict-aliasing $(CFLAGS)
LIBS       := -luv -lm -lpthread

ifeq ($(SAN),)
  CFLAGS_ALL += -O2 -flto=auto -ffat-lto-objects -fno-plt -DMAYFLY_JEMALLOC=1
  LDFLAGS_ALL := -O2 -flto=auto $(LDFLAGS)
  LIBS += -ljemalloc
else ifeq ($(SAN),address)
  CFLAGS_ALL += -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
  LDFLAGS_ALL := -fsanitize=address,undefined $(LDFLAGS)
else
  CFLAGS_ALL += -O1 -fsanitize=$(SAN) -fno-sanitize-recover=all
  LDFLAGS_ALL := -fsanitize=$(SAN) $(LDFLAGS)
endif

SRC      := $(shell find src -name '*.c' | sort)
OBJ      := $(SRC:src/%.c=$(BUILD)/obj/%.o)
LIB_OBJ  := $(filter-out $(BUILD)/obj/main.o,$(OBJ))
TEST_SRC := $(wildcard tests/unit/test_*.c tests/engine/test_*.c tests/exec/test_*.c)
TEST_BIN := $(TEST_SRC:tests/%.c=$(BUILD)/tests/%)
SUITES   := $(wildcard tests/engine/suite*.c)

.PHONY: all run test deps lint format bench fuzz soak install clean help unit server-tests oracle

all: $(BUILD)/mayfly-server

help:
	@sed -n '1,8s/^# \{0,1\}//p' Makefile
	@echo 'Targets: all run test unit server-tests oracle lint format bench fuzz soak install clean'

$(BUILD)/mayfly-server: $(OBJ)
	@echo '  LD   $@'
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(OBJ) $(LIBS)

$(BUILD)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	@echo '  CC   $<'
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/libmayfly.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJ)

# Tests use the machine code in the objects: link-time optimisation would take longer than they do.
$(BUILD)/tests/%: tests/%.c $(BUILD)/libmayfly.a $(SUITES)
	@mkdir -p $(@D)
	@echo '  LD   $@'
	$(Q)$(CC) $(CFLAGS_ALL) -O1 -fno-lto -Wno-missing-prototypes -Wno-array-bounds -Itests -o $@ $< \
	    $(if $(findstring tests/engine,$<),$(SUITES)) $(BUILD)/libmayfly.a $(LDFLAGS_ALL) -fno-lto $(LIBS) -lcmocka

-include $(OBJ:.o=.d)

deps:
	$(Q)scripts/deps

run: deps
	$(Q)$(MAKE) --no-print-directory all
	@mkdir -p data
	$(Q)$(BUILD)/mayfly-server --dir ./data --port $(PORT)

unit: $(TEST_BIN)
	$(Q)scripts/run-unit $(TEST_BIN)

server-tests: $(BUILD)/mayfly-server
	$(Q)MAYFLY_SERVER=$(abspath $(BUILD)/mayfly-server) $(PYTHON) -m pytest -q -p no:cacheprovider tests/server

# The same random commands to Mayfly and to redis-server; replies must match.
ORACLE_SEED     ?= 1
ORACLE_COMMANDS ?= 1000000
oracle: $(BUILD)/mayfly-server
	$(Q)$(PYTHON) tests/oracle/run.py --server $(BUILD)/mayfly-server --seed $(ORACLE_SEED) \
	    --commands $(ORACLE_COMMANDS) --resp both

test: deps
	$(Q)$(MAKE) --no-print-directory unit server-tests oracle
	$(Q)$(MAKE) --no-print-directory SAN=address unit server-tests oracle ORACLE_COMMANDS=200000
	@echo 'all tests passed'

clean:
	rm -rf build build-address build-undefined build-thread
