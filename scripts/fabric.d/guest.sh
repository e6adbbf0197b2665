# Runs on a virtual host as its first process: network, RDMA devices, then one job after another as scripts/fabric asks for them.
#
# A job is a directory /run/fabric/jobs/HOST/N with a file `command`; its number comes in over a virtio port. Left there:
# stdout, stderr, pid, and last of all code. Ends never; a power-off ends it.
fail() {
    echo "fabric: $*" | tee -a "/run/fabric/$host.failed" >&2
    echo o >/proc/sysrq-trigger
    sleep 60
}

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=linux LANG=C.UTF-8
. /run/fabric/settings
read -r cmdline </proc/cmdline
host=${cmdline##*fabric.host=} host=${host%% *}

mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
mkdir -p /dev/pts && mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
ln -sf /proc/self/fd /dev/fd
mkdir -p /run/lock /run/fabric/out /run/bin
echo "$host" >/proc/sys/kernel/hostname
ulimit -l unlimited
ulimit -c 0

# The kernel itself asks for modules (rxe for its checksum): they are in the unpacked package.
printf '#!/bin/sh\nexec modprobe -d "%s" "$@"\n' "$kernel_tree" >/run/bin/modprobe-fabric
printf '#!/bin/bash\n. /run/fabric/guest-tools.sh\nfabric_barrier %s "$@"\n' "$host" >/run/bin/fabric-barrier
printf '#!/bin/bash\n. /run/fabric/guest-tools.sh\nfabric_shell "$@"\n' >/run/bin/fabric-shell
chmod +x /run/bin/*
export PATH=$PATH:/run/bin
echo /run/bin/modprobe-fabric >/proc/sys/kernel/modprobe

# add_address DEVICE IPV4-PREFIX IPV6-PREFIX
number=1
[ "$host" = a ] || number=2
add_address() {
    [ "$hosts" = 2 ] || { modprobe-fabric dummy numdummies=0; ip link add "$1" type dummy; }
    ip link set "$1" mtu "$mtu" up || fail "no network device $1"
    ip addr add "$2.$number/24" dev "$1"
    ip -6 addr add "$3::$number/64" dev "$1" nodad
}
ip link set lo up
add_address eth0 192.0.2 2001:db8
printf '127.0.0.1 localhost\n::1 localhost\n192.0.2.1 a\n192.0.2.2 b\n2001:db8::1 a6\n2001:db8::2 b6\n' >/etc/hosts
iwarp_device=eth0
if [ "$transport" = both ]; then
    iwarp_device=eth1
    add_address eth1 198.51.100 2001:db8:1
    printf '198.51.100.1 a-iwarp\n198.51.100.2 b-iwarp\n2001:db8:1::1 a6-iwarp\n2001:db8:1::2 b6-iwarp\n' >>/etc/hosts
fi

if [ "$transport" != none ]; then
    for module in ib_uverbs rdma_ucm; do modprobe-fabric "$module" || fail "cannot load the module $module"; done
fi
case $transport in roce | both)
    modprobe-fabric rdma_rxe && rdma link add rxe0 type rxe netdev eth0 || fail "cannot make the RoCE device rxe0" ;;
esac
case $transport in iwarp | both)
    modprobe-fabric siw && rdma link add siw0 type siw netdev "$iwarp_device" || fail "cannot make the iWARP device siw0" ;;
esac

(sleep "$lifetime"; echo o >/proc/sysrq-trigger) &

run_job() {
    local dir=/run/fabric/jobs/$host/$1
    (
        cd "$repo" || exit 126
        exec 3>&- </dev/null >"$dir/stdout" 2>"$dir/stderr"
        setsid bash -c 'echo $$ >"$0/pid"; . "$0/command"' "$dir"
        echo $? >"$dir/code.new"
        mv "$dir/code.new" "$dir/code"
    ) &
}

exec 3</dev/vport*p1 || fail "no job channel"
touch "/run/fabric/$host.ready"
while true; do
    if read -r job <&3; then run_job "$job"; else sleep 0.2; fi
done
