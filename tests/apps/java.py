"""Java NIO: listener, selector, client channels and plain blocking sockets in one program and across two."""

from harness import ports
from harness.run import check, equal

NEEDS = ["java=openjdk-17-jdk-headless", "javac=openjdk-17-jdk-headless"]


def run(t):
    t.call("none", ["javac", "-d", t.dir, t.programs / "Nio.java"])
    port = ports.free_port()
    jvm = ["java", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", t.dir, "Nio"]
    server = t.start("server", [*jvm, "server", port], port=port, log="java.log")
    for what, name in (("channels", "40 non-blocking channels on one selector"), ("blocking", "20 threads with blocking sockets and time-outs"),
                       ("self", "listener, connect and accept in one thread of one program")):
        with t.case(name):
            equal(t.call("client", [*jvm, what, port]), "ok\n", f"Nio {what}")
            check(server.poll() is None, f"the server ended: {t.tail('java.log')}")
