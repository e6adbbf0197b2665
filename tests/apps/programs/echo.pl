# Line echo servers and their client, every byte checked: perl echo.pl fork|select|client PORT
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;

my ($kind, $port) = @ARGV;

sub listener {
    my $made = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 100, ReuseAddr => 1);
    die "listen: $!\n" unless $made;
    return $made;
}

if ($kind eq 'fork') {
    my $listener = listener();
    $SIG{CHLD} = 'IGNORE';
    while (1) {
        my $peer = $listener->accept;
        next unless $peer;    # EINTR by SIGCHLD
        my $pid = fork;
        die "fork: $!\n" unless defined $pid;
        if ($pid == 0) {
            close $listener;
            # buffered lines through perl's own stdio
            while (defined(my $line = <$peer>)) { print $peer $line; $peer->flush }
            exit 0;
        }
        close $peer;
    }
}
elsif ($kind eq 'select') {
    my $listener = listener();
    my $all = IO::Select->new($listener);
    while (my @ready = $all->can_read) {
        for my $one (@ready) {
            if ($one == $listener) { $all->add($listener->accept); next }
            my $got = sysread $one, my $data, 65536;
            if (!$got) { $all->remove($one); close $one; next }
            while (length $data) {
                my $sent = syswrite $one, $data;
                die "write: $!\n" unless defined $sent;
                substr $data, 0, $sent, '';
            }
        }
    }
}
else {
    my @peers = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 20) or die "connect: $!\n" } 1 .. 20;
    for my $turn (1 .. 100) {
        for my $number (0 .. $#peers) {
            my $line = join('-', $number, $turn, 'x' x (($turn * 37) % 3000)) . "\n";
            print { $peers[$number] } $line;
            $peers[$number]->flush;
            my $back = readline $peers[$number];
            die "turn $turn of $number differs\n" unless defined $back && $back eq $line;
        }
    }
    for my $peer (@peers) {
        shutdown $peer, 1;
        my $more = readline $peer;
        die "bytes after the end\n" if defined $more;
    }
    print "ok\n";
}
