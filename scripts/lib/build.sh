# Finds cargo and builds the release binaries. Sourced after output.sh, with $root set to the top of the project.

# The toolchain may be where rustup puts it without being in PATH (cron, CI, sudo).
if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi
command -v cargo >/dev/null || die "no cargo in PATH nor in ~/.cargo/bin; install Rust ${rust_version:-1.88} or newer (https://rustup.rs)"

# Where the build puts its results.
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR=$target
release=$target/release

# build: librsock.so and rsock, released; quiet unless it fails.
build() {
    local log began=$SECONDS
    log=$(mktemp)
    printf 'building rsock… '
    if ! (cd "$root" && cargo build --release --package rsock-preload --package rsock-cli) >"$log" 2>&1 </dev/null; then
        printf '%sFAILED%s\n' "$red" "$plain"
        tail -n 40 "$log" >&2
        rm -f "$log"
        die "cargo build --release failed (its last words are above)"
    fi
    rm -f "$log"
    printf 'done (%ss)\n' "$((SECONDS - began))"
}
