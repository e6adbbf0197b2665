# The virtual hosts of a fabric: start, stop, cut power, and the jobs that run on them.
#
# Sourced by scripts/fabric. A fabric is a directory: a.pid, a.console, a.jobs.in (fifo towards host a), share/ (9p, writable by both
# hosts: /run/fabric there). A job is share/jobs/HOST/N, see guest.sh.

fabric= detached=

# Makes $fabric the running fabric that the environment names.
fabric_use() {
    [ -n "${RSOCK_FABRIC:-}" ] || die "no running fabric: RSOCK_FABRIC is not set (scripts/fabric start prints it)"
    [ -e "$RSOCK_FABRIC/share/settings" ] || die "RSOCK_FABRIC=$RSOCK_FABRIC is no fabric"
    fabric=$RSOCK_FABRIC
    . "$fabric/share/settings"
}

fabric_start() {
    fabric=$(mktemp -d "${TMPDIR:-/tmp}/rsock-fabric.XXXXXX")
    mkdir -p "$fabric/share/barrier" "$fabric/share/out" "$fabric/share/jobs/a" "$fabric/share/jobs/b"
    cp "$here/fabric.d/guest.sh" "$here/fabric.d/guest-tools.sh" "$fabric/share/"
    local name
    for name in transport hosts memory cpus mtu lifetime repo kernel_tree kernel_image initramfs out; do
        printf '%s=%q\n' "$name" "${!name}"
    done >"$fabric/share/settings"
    host_boot a nowait
    [ "$hosts" = 1 ] || host_boot b nowait
    host_await a
    [ "$hosts" = 1 ] || host_await b
    say "hosts are up after $SECONDS s"
}

fabric_stop() {
    [ -n "$fabric" ] && [ -d "$fabric" ] || return 0
    local host
    for host in a b; do host_kill "$host"; done
    if [ -n "$out" ]; then
        cp -r "$fabric/share/out/." "$out/"
        for host in a b; do
            if [ -e "$fabric/$host.console" ]; then cp "$fabric/$host.console" "$out/"; fi
            if [ -d "$fabric/share/jobs/$host/1" ]; then mkdir -p "$out/jobs" && cp -r "$fabric/share/jobs/$host" "$out/jobs/"; fi
        done
    fi
    rm -rf "$fabric"
    fabric=
}

fabric_status() {
    local host
    echo "transport $transport, hosts $hosts, kernel ${kernel_tree##*/}, directory $fabric"
    for host in a b; do
        if host_alive "$host"; then echo "host $host: runs, pid $(<"$fabric/$host.pid")"; elif [ -e "$fabric/$host.pid" ]; then echo "host $host: is gone"; fi
    done
}

check_host() { case $1 in a | b) ;; *) die "a host is a or b, not '$1'" ;; esac; }

# True while the host's QEMU runs (a pid that was reused by another program does not count).
host_alive() {
    local pid
    [ -e "$fabric/$1.pid" ] && read -r pid <"$fabric/$1.pid" && grep -qsF "$fabric/$1.jobs" "/proc/$pid/cmdline"
}

# A network card between the two hosts: host a listens, host b connects.
network_card() {
    local host=$1 card=$2 role="server=on"
    [ "$host" = a ] || role="server=off"
    local number=1
    [ "$host" = a ] || number=2
    printf '%s\n' -netdev "stream,id=net$card,$role,addr.type=unix,addr.path=$fabric/wire$card" \
        -device "virtio-net-pci,netdev=net$card,romfile=,mac=52:54:00:00:0$card:0$number"
}

# host_boot HOST [nowait]
host_boot() {
    local host=$1 acceleration=tcg,thread=multi card attempt
    check_host "$host"
    ! host_alive "$host" || die "host $host already runs"
    rm -f "$fabric/share/$host.ready" "$fabric/share/$host.failed" "$fabric/$host.shell"
    rm -f "$fabric/$host.jobs.in" "$fabric/$host.jobs.out" && mkfifo "$fabric/$host.jobs.in" "$fabric/$host.jobs.out"
    # Not KVM by default: inside a virtual machine /dev/kvm may be there and yet hang.
    [ "${RSOCK_FABRIC_ACCEL:-tcg}" = tcg ] || acceleration=$RSOCK_FABRIC_ACCEL
    local machine=(
        qemu-system-x86_64 -name "rsock-fabric-$host" -machine q35 -accel "$acceleration" -cpu max -smp "$cpus" -m "$memory"
        -nodefaults -no-reboot -display none -nic none
        -kernel "$kernel_image" -initrd "$initramfs" -append "console=ttyS0 quiet panic=-1 mitigations=off fabric.host=$host"
        -chardev "file,id=console,path=$fabric/$host.console,append=on" -serial chardev:console
        -device virtio-serial-pci
        -chardev "pipe,id=jobs,path=$fabric/$host.jobs" -device virtserialport,chardev=jobs,nr=1
        -chardev "socket,id=shell,server=on,wait=off,path=$fabric/$host.shell" -device virtserialport,chardev=shell,nr=2
        -virtfs "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"
        -virtfs "local,path=$fabric/share,mount_tag=share,security_model=none,multidevs=remap"
        -device virtio-rng-pci
    )
    if [ "$hosts" = 2 ]; then
        for card in 0 1; do
            [ "$card" = 0 ] || [ "$transport" = both ] || continue
            # Host b can only connect to a listener that is already there.
            for attempt in {1..100}; do [ "$host" = a ] || [ -S "$fabric/wire$card" ] || sleep 0.05; done
            mapfile -t -O ${#machine[@]} machine < <(network_card "$host" "$card")
        done
    fi
    # A fabric that is not meant to outlive this process dies with it, even by SIGKILL.
    [ -n "$detached" ] || machine=(setpriv --pdeathsig KILL "${machine[@]}")
    "${machine[@]}" </dev/null >>"$fabric/$host.console" 2>&1 9>&- &
    echo $! >"$fabric/$host.pid"
    disown
    for attempt in {1..100}; do host_alive "$host" || ! kill -0 "$(<"$fabric/$host.pid")" 2>/dev/null || sleep 0.02; done
    [ "${2:-}" = nowait ] || host_await "$host"
}

# Waits until a host takes jobs.
host_await() {
    local host=$1 end=$((SECONDS + 240))
    until [ -e "$fabric/share/$host.ready" ]; do
        if [ -s "$fabric/share/$host.failed" ] || ! host_alive "$host" || [ $SECONDS -ge $end ]; then
            tail -n 25 "$fabric/$host.console" >&2
            die "host $host did not come up"
        fi
        sleep 0.1
    done
}

host_kill() {
    local pid attempt
    check_host "$1"
    host_alive "$1" || return 0
    read -r pid <"$fabric/$1.pid"
    kill -KILL "$pid" 2>/dev/null || true
    for attempt in {1..100}; do if host_alive "$1"; then sleep 0.02; fi; done
}

host_pause() { check_host "$1"; host_alive "$1" || die "host $1 does not run"; kill -STOP "$(<"$fabric/$1.pid")"; }
host_resume() { check_host "$1"; host_alive "$1" || die "host $1 does not run"; kill -CONT "$(<"$fabric/$1.pid")"; }

# job_spawn HOST COMMAND: prints the job's number.
job_spawn() {
    local host=$1 number=1 dir
    check_host "$host"
    if ! host_alive "$host"; then
        say "host $host is gone"
        return 125
    fi
    until mkdir "$fabric/share/jobs/$host/$number" 2>/dev/null; do number=$((number + 1)); done
    dir=$fabric/share/jobs/$host/$number
    printf '%s\n' "$2" >"$dir/command"
    touch "$dir/stdout" "$dir/stderr"
    echo "$number" >"$fabric/$host.jobs.in"
    echo "$number"
}

# job_wait HOST JOB SECONDS: prints what the job wrote and returns its exit code; 124 if time ran out (the job is killed), 125 if its host is gone.
job_wait() {
    local host=$1 dir=$fabric/share/jobs/$1/$2 end=$((SECONDS + $3)) code=
    check_host "$host"
    [ -d "$dir" ] || die "host $host has no job $2"
    until [ -e "$dir/code" ]; do
        if ! host_alive "$host"; then code=125; break; fi
        if [ $SECONDS -ge $end ]; then code=124; break; fi
        sleep 0.05
    done
    [ -n "$code" ] || read -r code <"$dir/code"
    cat "$dir/stdout"
    cat "$dir/stderr" >&2
    case $code in
        124) if [ ! -e "$dir/code" ]; then say "host $host: '$(<"$dir/command")' did not end within $3 s"; job_kill "$host" "$2"; fi ;;
        125) if [ ! -e "$dir/code" ]; then say "host $host is gone"; fi ;;
    esac
    return "$code"
}

# job_kill HOST JOB: kills a job with all that it started in its session.
job_kill() {
    local dir=$fabric/share/jobs/$1/$2
    [ ! -e "$dir/code" ] && [ -s "$dir/pid" ] && host_alive "$1" || return 0
    job_spawn "$1" "kill -KILL -- -$(<"$dir/pid")" >/dev/null
}

# A terminal on a host: a shell there on the second virtio port, socat here. Ends when either does.
host_shell() {
    local host=$1 size job terminal
    size=$(stty size 2>/dev/null || echo 24 80)
    job=$(job_spawn "$host" "fabric-shell $size")
    socat STDIO,raw,echo=0 "UNIX-CONNECT:$fabric/$host.shell" <&0 &
    terminal=$!
    while kill -0 "$terminal" 2>/dev/null && host_alive "$host" && [ ! -e "$fabric/share/jobs/$host/$job/code" ]; do sleep 0.1; done
    kill "$terminal" 2>/dev/null || true
    wait "$terminal" 2>/dev/null || true
    job_kill "$host" "$job"
}
