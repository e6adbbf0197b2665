"""haproxy with two threads in front of nginx: every body right, keep-alive on both sides, raw TCP mode, a seamless reload under load."""

import signal
import time

from harness import ports, servers
from harness.run import PYTHON, check, equal

NEEDS = ["haproxy=haproxy", "nginx=nginx-light", "wrk=wrk", "curl=curl"]


def run(t):
    nginx = servers.nginx(t)
    for name, size in (("small", 500), ("page", 30_000), ("picture", 400_000)):
        (nginx.www / name).write_bytes(bytes(i * 7 % 251 for i in range(size)))
    (nginx.www / "large").write_bytes(bytes(range(256)) * 80_000)
    web, raw = ports.free_port(), ports.free_port()
    identity = "user haproxy\n    group haproxy" if servers.os.geteuid() == 0 else ""
    (t.dir / "haproxy.cfg").write_text(f"""
global
    maxconn 2000
    nbthread 2
    insecure-fork-wanted
    {identity}
defaults
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend web
    mode http
    bind {servers.HOST}:{web}
    default_backend files
backend files
    mode http
    http-reuse always
    server one {servers.HOST}:{nginx.port}
listen raw
    mode tcp
    bind {servers.HOST}:{raw}
    server one {servers.HOST}:{nginx.port}
""")
    argv = ["haproxy", "-f", t.dir / "haproxy.cfg", "-db"]
    proxy = t.start("server", argv, port=web)

    for mode, port in (("http", web), ("tcp", raw)):
        url = f"http://{servers.HOST}:{port}"
        with t.case(f"{mode} mode: every body is right, also 20 MB"):
            check(int(t.call("client", [PYTHON, t.programs / "http_load.py", url, nginx.www, 4, 1.5])) > 10, "few answers")
            equal(t.call_bytes("client", ["curl", "-sS", f"{url}/large"]), bytes(range(256)) * 80_000, f"{url}/large")
        with t.case(f"{mode} mode: wrk sees no error"):
            out = t.call("client", ["wrk", "-t", "2", "-c", "32", "-d", "1", f"{url}/small"])
            check("Requests/sec" in out and "Socket errors" not in out and "Non-2xx" not in out, out)
    with t.case("a new haproxy takes over under load (SO_REUSEPORT)"):
        load = t.begin("client", [PYTHON, t.programs / "http_load.py", f"http://{servers.HOST}:{web}", nginx.www, 4, 3])
        time.sleep(1)
        successor = t.start("server", [*argv, "-sf", str(proxy.pid)], log="haproxy-2.log")
        out, err = load.communicate(timeout=60)
        check(load.returncode == 0 and int(out) > 10, f"http_load: {out.decode()} {err.decode()[-300:]}")
        equal(t.wait(proxy, 20), 0, "status of the old haproxy")
        equal(t.end(successor, how=signal.SIGUSR1), 0, "status of the new haproxy, told to stop softly")
    with t.case("no nginx worker crashed"):
        servers.free_of_crashes(t, nginx.error_log)
