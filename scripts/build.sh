# build.sh - to be sourced: `build PRESET [TARGET [cmake option ...]]` configures and builds, quietly
# unless it fails.
# SPDX-License-Identifier: Apache-2.0

build() {
    local preset=$1 target=${2:-all} log=build/$1/build.log
    shift $(($# < 2 ? $# : 2))
    mkdir -p "build/$preset"
    echo "building $preset"
    if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" --target "$target" -j "$(nproc)"; } >"$log" 2>&1; then
        cat "$log"
        echo "building $preset failed; all of it is in $log" >&2
        return 1
    fi
}
