# The front door. CMake does the work (CMakeLists.txt, CMakePresets.json); this file saves typing.
#
#   make [BUILD=folder] [PREFIX=/usr/local] [JOBS=2] [CMAKE_ARGS=-DZONAL_WERROR=ON] [SETUP=off]

BUILD      ?= build
PREFIX     ?= /usr/local
JOBS       ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_ARGS ?=
SETUP      ?= on

# Flags of this make mean nothing to the builds below it.
clean_env = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL
cmake     = $(clean_env) cmake

# Configures a folder ($(1)) by a preset ($(2)) if that has not been done; later changes of the
# build files are seen by the build itself. Ninja where there is one.
configure = test -f $(1)/build.ninja -o -f $(1)/Makefile || \
    $(cmake) --fresh --preset $(2) -B $(1) $$(command -v ninja >/dev/null && echo -GNinja) $(CMAKE_ARGS)
setup = ZONAL_SETUP=$(SETUP) scripts/setup.sh

.PHONY: all demo check install format sanitize gpu-check gpu-bench clean help

all:
	@$(setup) build
	@$(call configure,$(BUILD),release)
	@$(cmake) --build $(BUILD) -j $(JOBS)

demo: all
	@$(clean_env) scripts/demo.sh $(BUILD)/zonal

check:
	@$(setup) check
	@$(call configure,$(BUILD),release)
	@$(cmake) --build $(BUILD) -j $(JOBS)
	@$(clean_env) scripts/check.sh $(BUILD)

sanitize:
	@$(setup) check
	@$(call configure,$(BUILD)-sanitize,sanitize)
	@$(cmake) --build $(BUILD)-sanitize -j $(JOBS)
	@$(clean_env) scripts/check.sh $(BUILD)-sanitize

# For a machine with a GPU; what they need must be there (nothing is installed).
gpu-check:
	@$(clean_env) scripts/gpu_check.sh

gpu-bench:
	@$(clean_env) scripts/gpu_bench.sh $(RECORD)

install: all
	@$(cmake) --install $(BUILD) --prefix "$(PREFIX)"

format:
	@scripts/format.sh

clean:
	rm -rf $(BUILD) $(BUILD)-sanitize build-cuda build-min build-ci

help:
	@echo 'make           build the release; the program is $(BUILD)/zonal'
	@echo 'make demo      build, then show what it does'
	@echo 'make check     build, then run all tests'
	@echo 'make sanitize  the tests once more, with the address and undefined-behaviour sanitizers'
	@echo 'make gpu-check the CUDA losses against the reference, on a GPU'
	@echo 'make gpu-bench their times beside PyTorch'"'"'s; JSON lines go to RECORD=build-cuda/bench.jsonl'
	@echo 'make install   into PREFIX=$(PREFIX) (DESTDIR is honoured)'
	@echo 'make format    lay out all sources with clang-format 14'
	@echo 'make clean     remove what was built'
	@echo
	@echo 'Missing packages are installed with apt-get first; SETUP=off leaves that out.'
	@echo 'Other variables: BUILD=folder, JOBS=n, CMAKE_ARGS=-DZONAL_WERROR=ON and the like.'
