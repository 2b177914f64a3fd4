# The front door. CMake does the work (CMakeLists.txt, CMakePresets.json); this file saves typing.
# "make help" lists the targets and the variables.

BUILD      ?= build
PREFIX     ?= /usr/local
JOBS       ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_ARGS ?=
CHECK_ARGS ?= -LE long
DEMO_ARGS  ?=
PYTHON_ARGS ?=
SETUP      ?= on

# Flags of this make mean nothing to the builds below it.
clean_env = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL
cmake     = $(clean_env) cmake

# Configures a folder ($(1)) by a preset ($(2)); Ninja where there is one. A folder that has been
# configured is looked over again, which takes a second: setup.sh, or anyone, may have installed or
# removed a part since. It then prints (on stderr) only which parts have come or gone.
configure = if test -f $(1)/build.ninja -o -f $(1)/Makefile; then \
    $(cmake) -S . -B $(1) $(CMAKE_ARGS) >/dev/null; else \
    $(cmake) --fresh --preset $(2) -B $(1) $$(command -v ninja >/dev/null && echo -GNinja) $(CMAKE_ARGS); fi
setup = ZONAL_SETUP=$(SETUP) scripts/setup.sh

.PHONY: all demo check python install uninstall format sanitize gpu-check gpu-bench clean help

all:
	@$(setup) build
	@$(call configure,$(BUILD),release)
	@$(cmake) --build $(BUILD) -j $(JOBS)

# Only the program: the tests would take as long again.
demo:
	@$(setup) build
	@$(call configure,$(BUILD),release)
	@$(cmake) --build $(BUILD) -j $(JOBS) --target zonal_cli
	@$(clean_env) scripts/demo.sh $(BUILD)/zonal $(DEMO_ARGS)

check:
	@$(setup) check
	@$(call configure,$(BUILD),release)
	@$(cmake) --build $(BUILD) -j $(JOBS)
	@$(clean_env) scripts/check.sh $(BUILD) $(CHECK_ARGS)

# scikit-build-core configures and compiles by itself; CUDA is built where nvcc is found.
python:
	@$(setup) build
	@$(clean_env) CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/python.sh all $(BUILD)/python $(PYTHON_ARGS)

sanitize:
	@$(setup) check
	@$(call configure,$(BUILD)-sanitize,sanitize)
	@$(cmake) --build $(BUILD)-sanitize -j $(JOBS)
	@$(clean_env) scripts/check.sh $(BUILD)-sanitize $(CHECK_ARGS)

# For a machine with a GPU; what they need must be there (nothing is installed).
gpu-check:
	@$(clean_env) scripts/gpu_check.sh

gpu-bench:
	@$(clean_env) scripts/gpu_bench.sh $(RECORD)

install: all
	@$(cmake) --install $(BUILD) --prefix "$(PREFIX)"

uninstall:
	@$(clean_env) scripts/uninstall.sh $(BUILD)

format:
	@scripts/format.sh

clean:
	rm -rf $(BUILD) $(BUILD)-sanitize build-cuda build-min build-thread build-ci

help:
	@echo 'make           build the release; the program is $(BUILD)/zonal'
	@echo 'make demo      build the program, then show what it does'
	@echo 'make check     build, then run all tests'
	@echo 'make python    build the Python package: a wheel and an sdist in $(BUILD)/python'
	@echo 'make sanitize  the tests once more, with the address and undefined-behaviour sanitizers'
	@echo 'make gpu-check the CUDA losses against the reference, on a GPU'
	@echo 'make gpu-bench their times beside PyTorch'"'"'s; JSON lines go to RECORD=build-cuda/bench.jsonl'
	@echo 'make install   into PREFIX=$(PREFIX) (DESTDIR is honoured)'
	@echo 'make uninstall remove what the last "make install" of BUILD installed (DESTDIR is honoured)'
	@echo 'make format    lay out all sources with clang-format 14'
	@echo 'make clean     remove what was built'
	@echo
	@echo 'Variables, as in "make check BUILD=other JOBS=4":'
	@echo '  BUILD=build        the folder to build in'
	@echo '  JOBS=N             compilers at a time (now $(JOBS))'
	@echo '  SETUP=off          install nothing; missing packages are otherwise installed with apt-get'
	@echo '  CMAKE_ARGS=...     options of the configuration: -DZONAL_WERROR=ON, -DZONAL_CUDA=OFF ...'
	@echo '  CHECK_ARGS=...     arguments of ctest for check and sanitize: -R loss, -LE slow ...;'
	@echo '                     now $(CHECK_ARGS): without those that repeat others many times'
	@echo '  DEMO_ARGS=...      options of zonal train for the demo: --steps 1000 ...'
	@echo '  PYTHON_ARGS=...    settings of scikit-build-core for python: cmake.define.ZONAL_CUDA=OFF ...'
	@echo '  PREFIX=, DESTDIR=  where to install, and the root to put before it'
