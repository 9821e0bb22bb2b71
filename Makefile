# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds, tests and installs omptarget-mpi; cargo does the compiling.
#
#   make [MPI=openmpi|mpich] [DEBUG=1]   build into build/$(MPI), a folder laid out
#                                        like an install prefix (with DEBUG=1:
#                                        build/$(MPI)-debug; with TINY=1: a debug build with tiny
#                                        limits, for tests, build/$(MPI)-tiny)
#   make both                            for Open MPI and MPICH, side by side
#   make install PREFIX=DIR [DESTDIR=…]  copy what make built to a prefix
#   make uninstall PREFIX=DIR            remove it from there, for all MPIs
#   make llvm22                          LLVM 22's libomptarget and liboffload with the plugin in
#                                        them, which replace the system's own for a program of
#                                        clang-22 (also llvm19, llvm20, llvm21); on Debian, with LLVM
#                                        in /usr/lib/llvm-22; LLVM_SOURCE=DIR: a source tree of LLVM,
#                                        if not the system's source package
#   make setup                           install what Debian 12 or 13 lacks for all this
#   make demo                            an example on two devices
#   make bench [MPI=…] [ROUNDS=3]        what regions and copies cost, see bench/README.md
#   make check [SUITES="unit …"]         the tests, or the suites named (test/README.md)
#   make check-all                       every suite (on Debian 12 each release of LLVM with each MPI): hours
#   make check-faults [TIMES=3]          every fault of docs/user/reliability.md, with both MPIs
#   make check-llvm19                    LLVM 19's offload library built with the plugin
#                                        in it, and every test with that
#   make check-detects [WORDS=…]         breaks the product in 170 ways, one at a time: does
#                                        a test notice? (test/detects/run)
#   make check-debian13                  in a root of Debian 13, which it makes: tests with its
#                                        MPIs and the real LLVM 17, 18 and 22
#   make check-gpu [MPI=…] [LLVM=16]     tests on this machine's GPU (scripts/check-gpu); a machine
#                                        that lacks compilers and MPI: scripts/gpu-bundle
#   make soak [MPI=…] [SOAK_SECONDS=600] [SOAK_SEED=N] [SOAK_FLAGS="--spares 1 --devices 2"]
#                                        random work of 8 threads on 4 devices: every result
#                                        and the memory of every process checked
#   make sanitize [MPI=…]                programs under AddressSanitizer and valgrind, unit tests
#                                        under AddressSanitizer and ThreadSanitizer
#   make fmt / lint / fuzz / clean       FUZZ_SECONDS: per fuzz target
#   make help                            this text

MPI ?= openmpi
# The compiler wrapper decides which MPI is built for. Where the wrapper is not
# named as on Debian: make MPICC=mpicc.
MPICC ?= mpicc.$(MPI)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
ROUNDS ?= 3
TIMES ?= 3

features := $(if $(TINY),--features tiny-limits)
build := build/$(MPI)$(if $(TINY),-tiny,$(if $(DEBUG),-debug))
cargo-dir := build/cargo/$(MPI)
debug := $(or $(DEBUG),$(TINY))
cargo-out := $(cargo-dir)/$(if $(debug),debug,release)
flang-runtime := build/fortran/libomptarget-flang.a
cargo := MPICC=$(MPICC) CARGO_TARGET_DIR=$(cargo-dir) cargo
can-build := scripts/can-build '$(MPICC)' '$(MPI)'

.PHONY: all both help install uninstall llvm19 llvm20 llvm21 llvm22 setup demo bench check check-all check-faults check-llvm19 check-debian13 check-detects check-gpu soak sanitize fmt lint fuzz clean

# $(call lay-out,TO): copies what cargo made to a prefix, which may have builds for
# other MPIs already; the plain names are of the last one. libomptarget 18 and older find a
# plugin by one of a few file names; the one of a target that nobody has here leaves every
# stock plugin in place. LLVM 18 looks for no such name, but for that of its own host plugin,
# which this must not hide from other releases. From 19 on plugins are part of libomptarget:
# there the folder has that library itself, if it was built (make llvm22); it is the same
# for all MPIs. These folders hold nothing else, to be safe on LD_LIBRARY_PATH.
define lay-out
@install -d '$1/bin' '$1/include' '$1/share/man/man1' \
  '$1/lib/omptarget-mpi/llvm18' \
  '$1/lib/omptarget-mpi/$(MPI)/llvm17' '$1/lib/omptarget-mpi/$(MPI)/llvm18'
@install -m 755 '$(cargo-out)/libomptarget_mpi.so' '$1/lib/omptarget-mpi/$(MPI)/libomptarget.rtl.mpi.so'
@install -m 755 '$(cargo-out)/llvm-offload-mpi-device' '$1/lib/omptarget-mpi/$(MPI)/'
@install -m 755 '$(cargo-out)/llvm-offload-mpirun' '$1/bin/'
@ln -sfn ../libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/$(MPI)/llvm17/libomptarget.rtl.ppc64.so'
@ln -sfn ../libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/$(MPI)/llvm18/libomptarget.rtl.x86_64.so'
@ln -sfn $(MPI)/libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/libomptarget.rtl.ppc64.so'
@ln -sfn ../$(MPI)/libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/llvm18/libomptarget.rtl.x86_64.so'
@for built in build/llvm/*/lib; do \
  [ -d $$built ] || continue; llvm=$${built%/lib}; llvm=llvm$${llvm##*/}; \
  install -d '$1/lib/omptarget-mpi'/$$llvm '$1/lib/omptarget-mpi/$(MPI)'/$$llvm && \
  rm -f '$1/lib/omptarget-mpi'/$$llvm/*.so.* '$1/lib/omptarget-mpi/$(MPI)'/$$llvm/*.so.* && \
  install -m 644 $$built/*.so.* '$1/lib/omptarget-mpi'/$$llvm/ && \
  ln -sfn ../$(MPI)/libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi'/$$llvm/libomptarget.rtl.mpi.so && \
  ln -sfn ../libomptarget.rtl.mpi.so '$1/lib/omptarget-mpi/$(MPI)'/$$llvm/libomptarget.rtl.mpi.so || exit 1; \
  for file in $$built/*.so.*; do \
    ln -sfn ../../$$llvm/$${file##*/} '$1/lib/omptarget-mpi/$(MPI)'/$$llvm/ || exit 1; done; done
@ln -sfn omptarget-mpi/$(MPI)/libomptarget.rtl.mpi.so '$1/lib/libomptarget.rtl.mpi.so'
@ln -sfn ../lib/omptarget-mpi/$(MPI)/llvm-offload-mpi-device '$1/bin/llvm-offload-mpi-device'
@install -m 644 include/*.h '$1/include/'
@install -m 644 '$(flang-runtime)' $(wildcard build/llvm/*/lib/*.bc) '$1/lib/'
@for p in llvm-offload-mpirun llvm-offload-mpi-device; do \
  '$(cargo-out)'/$$p --man > '$1'/share/man/man1/$$p.1 || exit 1; done
endef

# Always calls cargo, which knows best what is out of date.
all: $(flang-runtime)
	@$(can-build)
	$(cargo) build --locked --lib --bins $(features) $(if $(debug),,--release)
	$(call lay-out,$(build))

# The end of each build keeps one core only.
both: $(flang-runtime)
	@scripts/can-build mpicc.openmpi openmpi
	@MPICC=mpicc.openmpi scripts/share-crates build/cargo/openmpi build/cargo/mpich
	@$(MAKE) --no-print-directory MPI=mpich MPICC=mpicc.mpich all & \
	  $(MAKE) --no-print-directory MPI=openmpi MPICC=mpicc.openmpi all; status=$$?; wait $$! && exit $$status

# What Fortran programs are linked with: their own, no part of the plugin.
$(flang-runtime): fortran/runtime.c
	@install -d $(@D)
	$(CC) -O2 -fPIC -Wall -Wextra -c $< -o $(@:.a=.o)
	$(AR) rcs $@ $(@:.a=.o)

# Builds nothing, so that root needs no cargo for `sudo make install`.
install:
	@test -e $(build)/bin/llvm-offload-mpi-device -a -e $(flang-runtime) || \
	  { echo "nothing to install in $(build): run make first" >&2; exit 1; }
	$(call lay-out,$(DESTDIR)$(PREFIX))
	@echo "installed in $(DESTDIR)$(PREFIX)"

uninstall:
	rm -rf '$(DESTDIR)$(PREFIX)/lib/omptarget-mpi' $(addprefix '$(DESTDIR)$(PREFIX)'/,bin/llvm-offload-mpirun \
	  bin/llvm-offload-mpi-device lib/libomptarget.rtl.mpi.so lib/$(notdir $(flang-runtime)) \
	  lib/$(basename $(notdir $(flang-runtime)))-*.bc $(wildcard include/*.h) \
	  share/man/man1/llvm-offload-mpirun.1 share/man/man1/llvm-offload-mpi-device.1)

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

# One after the other: each installs packages, and builds all.
.NOTPARALLEL:
llvm19 llvm20 llvm21 llvm22:
	@scripts/setup $@
	@$(can-build)
	@scripts/llvm.py $(@:llvm%=%) $(if $(LLVM_SOURCE),--source '$(LLVM_SOURCE)')
	@$(MAKE) --no-print-directory all

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
	@scripts/setup check19
	@scripts/setup slurm
	@scripts/check everything

check-faults: setup
	@FAULT_TIMES=$(TIMES) scripts/check faults

check-llvm19:
	@scripts/setup check19
	@scripts/check llvm19

check-debian13:
	@scripts/check debian13

check-detects:
	@scripts/setup check19
	@scripts/llvm.py 19
	@test/detects/run $(WORDS)

check-gpu:
	@MPI=$(MPI) scripts/check-gpu

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
	@$(can-build)
	$(cargo) clippy --locked --all-targets -- -D warnings

fuzz:
	@scripts/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build
