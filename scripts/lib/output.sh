# What the scripts say and how: steps, problems, colours (only on a terminal). Sourced by the scripts beside this folder.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m'
else
    bold='' green='' red='' dim='' plain=''
fi

# say WORDS…: one line of progress.
say() { printf '%s\n' "$*"; }

# die WORDS…: what was tried, what happened, what to do; then the end.
die() {
    printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2
    exit 1
}

# step NAME COMMAND…: runs COMMAND with its output in $logs/NAME.log, prints one line with the verdict and how long it
# took, and shows the end of the log when it failed. Counts in $passed and $failed. Returns the command's status.
passed=0
failed=0
step() {
    local name=$1 log status=0 began=$SECONDS
    shift
    log=$logs/${name//[^A-Za-z0-9._-]/-}.log
    printf '%s… ' "$name"
    TERM=dumb CARGO_TERM_COLOR=never "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -eq 0 ]; then
        printf '%sok%s %s(%ss)%s\n' "$green" "$plain" "$dim" "$((SECONDS - began))" "$plain"
        passed=$((passed + 1))
    else
        printf '%sFAILED%s %s(status %s, %ss, %s)%s\n' "$red" "$plain" "$dim" "$status" "$((SECONDS - began))" "$log" "$plain"
        tail -n "${step_tail:-30}" "$log" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
    return "$status"
}
