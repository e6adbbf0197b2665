# Commands on a virtual host: fabric-barrier and fabric-shell.

# fabric_barrier HOST NAME [SECONDS]: waits until both hosts have come to NAME.
fabric_barrier() {
    local mine=/run/fabric/barrier/$2.$1 other=/run/fabric/barrier/$2.b end=$((SECONDS + ${3:-60}))
    [ "$1" = a ] || other=/run/fabric/barrier/$2.a
    touch "$mine"
    until [ -e "$other" ]; do
        if [ $SECONDS -ge $end ]; then
            echo "fabric-barrier: the other host did not come to '$2'" >&2
            return 124
        fi
        sleep 0.05
    done
}

# fabric_shell ROWS COLUMNS: a shell on the second virtio port, which scripts/fabric connects to a terminal.
fabric_shell() {
    echo "PS1='\h# '" >/run/fabric-bashrc
    exec socat "SYSTEM:stty rows $1 cols $2; exec bash --rcfile /run/fabric-bashrc -i,pty,setsid,ctty,stderr,sane" "OPEN:$(echo /dev/vport*p2),ignoreeof"
}
