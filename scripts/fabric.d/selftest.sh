# The self-test of one transport between two running hosts: ping by TCP's own network, then rping and rstream over RDMA.
#
# Sourced by scripts/fabric: selftest_transport SERVER-NAME WORD.

# on_both WHAT SERVER-COMMAND CLIENT-COMMAND: both have to exit with 0.
on_both() {
    local what=$1 server client code=0
    server=$(job_spawn a "$2")
    client=$(job_spawn b "$3")
    job_wait b "$client" 60 >"$fabric/selftest" 2>&1 || code=$?
    job_wait a "$server" 20 >>"$fabric/selftest" 2>&1 || code=$?
    if [ "$code" = 0 ]; then echo "ok    $what"; else sed 's/^/      /' "$fabric/selftest"; echo "FAIL  $what (exit code $code)"; fi
    return "$code"
}

selftest_transport() {
    local name=$1 word=$2 failed=0 retry='for n in 1 2 3 4 5 6 7 8; do sleep 0.5; %s && exit; done; exit 1'
    on_both "$word: rping, IPv4" "rping -s -a $name -C 20" "$(printf "$retry" "rping -c -a $name -C 20")" || failed=1
    on_both "$word: rping, IPv6" "rping -s -a ${name/a/a6} -C 20" "$(printf "$retry" "rping -c -a ${name/a/a6} -C 20")" || failed=1
    on_both "$word: rstream" "rstream -b $name -S 65536 -C 100" "$(printf "$retry" "rstream -s $name -S 65536 -C 100")" || failed=1
    return "$failed"
}
