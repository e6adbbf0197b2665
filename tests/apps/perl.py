"""Perl: a server that forks for each connection and one with IO::Select, clients with IO::Socket and stdio."""

from harness import ports
from harness.run import check, equal

NEEDS = ["perl=perl"]


def run(t):
    for kind, what in (("fork", "a child for each connection"), ("select", "IO::Select in one process")):
        with t.case(what):
            port = ports.free_port()
            server = t.start("server", ["perl", t.programs / "echo.pl", kind, port], port=port, log=f"perl-{kind}.log")
            equal(t.call("client", ["perl", t.programs / "echo.pl", "client", port]), "ok\n", f"echo.pl client of {kind}")
            check(server.poll() is None, f"the server ended: {t.tail(f'perl-{kind}.log')}")
            t.end(server)
