# SPDX-License-Identifier: BSD-2-Clause
# Forwards to Meson; every target works on a fresh clone.
BUILD ?= build

.PHONY: all demo check bench clean setup
all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja: | setup
	@meson setup $(BUILD) >/dev/null

setup:
	@tools/bootstrap

demo: all
	@examples/demo $(BUILD)

check: all
	@tests/run $(BUILD)

bench: all
	@benchmarks/run $(BUILD)

clean:
	rm -rf $(BUILD)
