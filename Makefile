# SPDX-License-Identifier: BSD-2-Clause
# Forwards to Meson; every target works on a fresh clone. BUILD=dir: another build directory.
BUILD ?= build

.PHONY: all demo check check-rxe check-sanitizers apps bench clean
all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@tools/bootstrap
	@out=$$(meson setup $(BUILD) 2>&1) || { echo "$$out"; exit 1; }

demo: all
	@examples/demo $(BUILD)

check: all
	@tests/run $(BUILD)

check-rxe: all
	@tests/run $(BUILD) rxe

check-sanitizers: $(BUILD)/build.ninja
	@tools/check-sanitizers $(BUILD)

apps: all
	@tests/run $(BUILD) apps

bench: all
	@benchmarks/run $(BUILD)

clean:
	rm -rf $(BUILD)
