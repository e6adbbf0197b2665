# Installs what a script uses and the machine lacks, from Debian's packages. Sourced after output.sh.

# need COMMAND=PACKAGE…: makes every COMMAND (a name, or an absolute path, * allowed, of a file that must exist) available by installing its
# PACKAGE. Empty pairs are nothing to do. Quiet when nothing is missing. Without root it says what to install and fails.
need() {
    local pair command missing=()
    for pair in "$@"; do
        command=${pair%%=*}
        [ -z "$command" ] || have "$command" || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    command -v apt-get >/dev/null ||
        die "these Debian packages (or what matches them here) are missing: ${missing[*]}; there is no apt-get on this machine, so install them by hand"
    [ "$(id -u)" -eq 0 ] ||
        die "these Debian packages are missing: ${missing[*]}; as root run: apt-get install --no-install-recommends ${missing[*]}"
    say "installing ${missing[*]}"
    install_packages "${missing[@]}"
    for pair in "$@"; do
        command=${pair%%=*}
        [ -z "$command" ] || have "$command" || die "installed ${pair#*=}, but $command is still not there"
    done
}

# have COMMAND: is it there, in PATH or where Debian puts servers?
have() {
    case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
    esac
}

# The packages bring system services with them; a policy file keeps dpkg from starting those, and goes away afterwards.
install_packages() {
    local policy=/usr/sbin/policy-rc.d ours='' log status=0
    log=$(mktemp)
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        ours=yes
    fi
    export DEBIAN_FRONTEND=noninteractive
    local apt=(apt-get -qq -y -o DPkg::Lock::Timeout=600)
    "${apt[@]}" install --no-install-recommends "$@" >"$log" 2>&1 </dev/null ||
        { "${apt[@]}" update >"$log" 2>&1 </dev/null &&
            "${apt[@]}" install --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; } || status=$?
    [ -z "$ours" ] || rm -f "$policy"
    if [ "$status" -ne 0 ]; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "apt-get could not install $* (its last words are above)"
    fi
    rm -f "$log"
}
