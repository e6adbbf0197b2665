# What the test fabric needs from Debian, installed or unpacked once: programs, a kernel with its modules, siw, an initramfs.
#
# Sourced by scripts/fabric. After `prepare TRANSPORT`: $kernel_version, $kernel_tree (unpacked packages), $kernel_image, $initramfs.

cache=${RSOCK_FABRIC_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rsock-fabric}

# Installs Debian packages, or says how to.
install_packages() {
    local root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || die "please install what is missing: apt-get install $*"
        root=(sudo -n)
    fi
    command -v apt-get >/dev/null || die "this needs Debian's packages $*, and there is no apt-get here"
    say "installing $*"
    local log=$cache/install.log
    local install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@")
    "${install[@]}" >"$log" 2>&1 && return
    "${root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 update >>"$log" 2>&1 || true
    "${install[@]}" >>"$log" 2>&1 || { tail -n 5 "$log" >&2; die "cannot install $* (all of it in $log)"; }
}

# need FILE-OR-PROGRAM PACKAGE …: installs PACKAGE if FILE-OR-PROGRAM is not there.
need() {
    local wanted=() path=$PATH:/usr/sbin:/sbin
    while [ $# -gt 0 ]; do
        if [[ $1 = /* ]]; then [ -e "$1" ] || wanted+=("$2"); else PATH=$path type -P "$1" >/dev/null || wanted+=("$2"); fi
        shift 2
    done
    [ ${#wanted[@]} = 0 ] || install_packages "${wanted[@]}"
}

# Downloads a package, unpacks what matches the given patterns into $kernel_tree.
unpack_package() {
    local package=$1 dir=$cache/download
    shift
    rm -rf "$dir" && mkdir -p "$dir"
    # As root apt drops privileges to a user that cannot write here; that is fine, and its warning no news.
    (cd "$dir" && apt-get -qq -o APT::Sandbox::User=root download "$package") || die "cannot download the package $package"
    dpkg-deb --fsys-tarfile "$dir"/*.deb | tar -x -C "$kernel_tree.new" --wildcards "$@" || die "cannot unpack $package"
    rm -rf "$dir"
}

# The newest 6.1 kernel of Debian 12 that apt knows, "6.1.0-NN-amd64"; what is already unpacked is good enough.
find_kernel() {
    local have
    have=$(find "$cache" -mindepth 2 -maxdepth 2 -name ready -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
    if [ -n "$have" ]; then
        kernel_version=$(basename "$have")
        return
    fi
    newest_kernel() { apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: linux-image-\([0-9].*-amd64\)$/\1/p' | head -n 1; }
    kernel_version=$(newest_kernel)
    if [ -z "$kernel_version" ]; then
        install_packages kmod
        apt-get -qq update 2>/dev/null || true
        kernel_version=$(newest_kernel)
    fi
    [ -n "$kernel_version" ] || die "apt knows no linux-image-amd64: is this Debian, and did apt-get update work?"
}

# Kernel and modules from the package, without installing it.
unpack_kernel() {
    [ -e "$kernel_tree/ready" ] && return
    say "unpacking the kernel $kernel_version into $cache"
    rm -rf "$kernel_tree" "$kernel_tree.new" && mkdir -p "$kernel_tree.new"
    unpack_package "linux-image-$kernel_version" './boot/vmlinuz-*' './lib/modules/*'
    depmod -b "$kernel_tree.new" "$kernel_version" || die "depmod failed"
    build_initramfs "$kernel_tree.new"
    mv "$kernel_tree.new" "$kernel_tree"
    touch "$kernel_tree/ready"
}

# 1.5 MB: busybox, the modules for virtio, 9p and overlay, and guest-init.
build_initramfs() {
    local tree=$1 dir=$1/initramfs module
    mkdir -p "$dir/bin" "$dir/modules"
    cp "$(type -P busybox)" "$dir/bin/busybox"
    for module in virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay; do
        modprobe -d "$tree" -S "$kernel_version" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
        cp "$module" "$dir/modules/"
        basename "$module" >>"$dir/modules/order"
    done
    [ -s "$dir/modules/order" ] || die "the kernel package has no virtio and 9p modules"
}

pack_initramfs() {
    local dir=$kernel_tree/initramfs
    initramfs=$kernel_tree/initramfs.gz
    if [ ! -e "$initramfs" ] || [ "$here/fabric.d/guest-init" -nt "$initramfs" ]; then
        install -m 755 "$here/fabric.d/guest-init" "$dir/init"
        (cd "$dir" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$initramfs.new"
        mv "$initramfs.new" "$initramfs"
    fi
}

# siw is in Linux but not in Debian's kernel: its source, built as one module for that kernel.
build_siw() {
    local module=$kernel_tree/lib/modules/$kernel_version/extra/siw.ko build=$cache/siw-build
    [ -e "$module" ] && return
    local headers=/lib/modules/$kernel_version/build series=${kernel_version%%.0-*}
    need make make gcc gcc xz xz-utils "$headers/Makefile" "linux-headers-$kernel_version"
    say "building siw (iWARP) for $kernel_version"
    rm -rf "$build" && mkdir -p "$build"
    local archive=$cache/linux-source.deb
    rm -rf "$cache/download" && mkdir -p "$cache/download"
    (cd "$cache/download" && apt-get -qq -o APT::Sandbox::User=root download "linux-source-$series") || die "cannot download the package linux-source-$series"
    mv "$cache"/download/*.deb "$archive"
    dpkg-deb --fsys-tarfile "$archive" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
        xz -dc -T0 | tar -x -C "$build" --strip-components=5 --wildcards '*/drivers/infiniband/sw/siw/*' || die "cannot unpack siw from linux-source-$series"
    rm -f "$archive"
    make -s -C "$headers" "M=$build" CONFIG_RDMA_SIW=m modules >"$cache/siw.log" 2>&1 || { tail -n 20 "$cache/siw.log" >&2; die "cannot build siw"; }
    mkdir -p "$(dirname "$module")"
    cp "$build/siw.ko" "$module.new" && mv "$module.new" "$module"
    depmod -b "$kernel_tree" "$kernel_version"
    rm -rf "$build"
}

prepare() {
    local transport=$1
    [ "$(uname -m)" = x86_64 ] || die "the fabric's hosts are x86-64; this machine is $(uname -m)"
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    need qemu-system-x86_64 qemu-system-x86 /usr/share/doc/busybox-static busybox-static depmod kmod ip iproute2
    if [ "$transport" != none ]; then
        need rping rdmacm-utils ibv_devinfo ibverbs-utils "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so" ibverbs-providers
    fi
    PATH=$PATH:/usr/sbin:/sbin
    find_kernel
    kernel_tree=$cache/$kernel_version
    unpack_kernel
    pack_initramfs
    kernel_image=$kernel_tree/boot/vmlinuz-$kernel_version
    case $transport in iwarp | both) build_siw ;; esac
    flock -u 9
    exec 9>&-
}
