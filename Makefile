# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds, tests and installs omptarget-mpi; cargo does the compiling.
#
#   make [MPI=openmpi|mpich] [DEBUG=1]   build into build/$(MPI), a folder laid out
#                                        like an install prefix (with DEBUG=1:
#                                        build/$(MPI)-debug; with TINY=1: a debug build with tiny
#                                        limits, for tests, build/$(MPI)-tiny)
#   make install PREFIX=DIR [DESTDIR=…]  copy what make built to a prefix
#   make setup                           install what Debian 12 or 13 lacks for all this
#   make demo                            an example on two devices
#   make bench [MPI=…] [ROUNDS=3]        what regions and copies cost, see bench/README.md
#   make check [SUITES="unit …"]         the tests, or the suites named (test/README.md)
#   make check-all                       every suite there is, some of them long
#   make check-faults [TIMES=3]          every fault of docs/reliability.md, with both MPIs
#   make check-llvm19                    LLVM 19's offload library built with the plugin
#                                        in it, and every test with that
#   make soak [MPI=…] [SOAK_SECONDS=600] [SOAK_SEED=N] [SOAK_FLAGS="--spares 1 --devices 2"]
#                                        random work of 8 threads on 4 devices: every result
#                                        and the memory of every process checked
#   make sanitize [MPI=…]                programs under AddressSanitizer and valgrind, unit tests
#                                        under AddressSanitizer and ThreadSanitizer
#   make fmt / lint / fuzz / clean       FUZZ_SECONDS: per fuzz target

MPI ?= openmpi
# The compiler wrapper decides which MPI is built for. Where the wrapper is not
# named as on Debian: make MPICC=mpicc.
MPICC ?= mpicc.$(MPI)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
ROUNDS ?= 3
TIMES ?= 3

build := build/$(MPI)$(if $(TINY),-tiny,$(if $(DEBUG),-debug))
cargo-dir := build/cargo/$(MPI)
debug := $(or $(DEBUG),$(TINY))
cargo-out := $(cargo-dir)/$(if $(debug),debug,release)
plugin-out := $(cargo-dir)/$(if $(debug),debug,plugin)
cargo := MPICC=$(MPICC) CARGO_TARGET_DIR=$(cargo-dir) cargo

.PHONY: all install setup demo bench check check-all check-faults check-llvm19 soak sanitize fmt lint fuzz clean

# $(call lay-out,TO): copies what cargo made to a prefix, which may have builds for
# other MPIs already; the plain names are of the last one. libomptarget 18 and older find a
# plugin by one of a few file names; the one of a target that nobody has here leaves every
# stock plugin in place. LLVM 18 looks for no such name, but for that of its own host plugin,
# which this must not hide from other releases. These folders hold nothing else, to be safe
# on LD_LIBRARY_PATH.
define lay-out
@install -d '$1/bin' '$1/include' '$1/share/man/man1' \
  '$1/lib/omptarget-mpi/llvm18' \
  '$1/lib/omptarget-mpi/$(MPI)/llvm17' '$1/lib/omptarget-mpi/$(MPI)/llvm18'
@install -m 755 '$(plugin-out)/libomptarget_mpi.so' '$1/lib/omptarget-mpi/$(MPI)/libomptarget.rtl.mpi.so'
@install -m 755 '$(cargo-out)/llvm-offload-mpi-device' '$1/lib/omptarget-mpi/$(MPI)/'
@install -m 755 '$(cargo-out)/llvm-offload-mpirun' '$1/bin/'
@ln -sfn ../libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/$(MPI)/llvm17/libomptarget.rtl.ppc64.so'
@ln -sfn ../libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/$(MPI)/llvm18/libomptarget.rtl.x86_64.so'
@ln -sfn $(MPI)/libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/libomptarget.rtl.ppc64.so'
@ln -sfn ../$(MPI)/libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/llvm18/libomptarget.rtl.x86_64.so'
@ln -sfn omptarget-mpi/$(MPI)/libomptarget.rtl.mpi.so '$1/lib/libomptarget.rtl.mpi.so'
@ln -sfn ../lib/omptarget-mpi/$(MPI)/llvm-offload-mpi-device '$1/bin/llvm-offload-mpi-device'
@install -m 644 include/*.h '$1/include/'
@for p in llvm-offload-mpirun llvm-offload-mpi-device; do \
  '$(cargo-out)'/$$p --man > '$1'/share/man/man1/$$p.1 || exit 1; done
endef

# Always calls cargo, which knows best what is out of date. The library by itself: see
# Cargo.toml.
all:
	$(cargo) build --locked --bins $(if $(TINY),--features tiny-limits) $(if $(debug),--lib,--release)
	$(if $(debug),,$(cargo) rustc --locked --profile plugin --lib --crate-type cdylib)
	$(call lay-out,$(build))

# Builds nothing, so that root needs no cargo for `sudo make install`.
install:
	@test -e $(build)/bin/llvm-offload-mpi-device || \
	  { echo "nothing to install in $(build): run make first" >&2; exit 1; }
	$(call lay-out,$(DESTDIR)$(PREFIX))
	@echo "installed in $(DESTDIR)$(PREFIX)"

setup:
	@scripts/setup

demo:
	@scripts/demo

bench:
	@scripts/setup bench
	@$(MAKE) --no-print-directory all DEBUG=
	@bench/run --mpi $(MPI) --rounds $(ROUNDS)
	@build/venv/bin/python bench/picture --mpi $(MPI)

check: setup
	@scripts/check $(SUITES)

check-all:
	@scripts/setup llvm19
	@scripts/check everything

check-faults: setup
	@FAULT_TIMES=$(TIMES) scripts/check faults

check-llvm19:
	@scripts/setup llvm19
	@scripts/check llvm19

soak: all
	@test/soak/run --mpi $(MPI) --prefix $(build) --seconds $(SOAK_SECONDS) \
	  $(if $(SOAK_SEED),--seed $(SOAK_SEED)) $(SOAK_FLAGS)

sanitize:
	@$(MAKE) --no-print-directory all DEBUG=1
	@test/sanitize/run $(MPI)

fmt:
	cargo fmt

lint:
	cargo fmt --check
	$(cargo) clippy --locked --all-targets -- -D warnings

fuzz:
	@scripts/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build
