"""nginx as a daemon with two workers: large files, keep-alive and short connections, reloads under load, a worker killed, TLS."""

import hashlib
import os
import random
import signal
import time

from harness import servers
from harness.run import PYTHON, check, children, equal

NEEDS = ["nginx=nginx-light", "wrk=wrk", "curl=curl", "openssl=openssl"]


def run(t):
    tls_port = servers.ports.free_port()
    t.call("none", ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout",
                    "key.pem", "-out", "cert.pem"])
    nginx = servers.nginx(t, daemon=True, server=f"listen {servers.HOST}:{tls_port} ssl; ssl_certificate {t.dir}/cert.pem; "
                                                 f"ssl_certificate_key {t.dir}/key.pem;")
    url = f"http://{servers.HOST}:{nginx.port}"
    sums = files(nginx.www)
    load = [PYTHON, t.programs / "http_load.py", url, nginx.www, "4"]

    with t.case("a file of 64 MB arrives unchanged, plain and over TLS"):
        for place in (url, f"https://{servers.HOST}:{tls_port}"):
            got = t.call_bytes("client", ["curl", "-s", "-S", "-k", f"{place}/large"])
            equal(hashlib.sha256(got).hexdigest(), sums["large"], f"checksum of {place}/large")
    with t.case("wrk with keep-alive and with a connection for each request"):
        for header, connections in (("Connection: keep-alive", 64), ("Connection: close", 16)):
            out = t.call("client", ["wrk", "-t", "2", "-c", connections, "-d", "1", "-H", header, f"{url}/small"])
            check("Requests/sec" in out and "Socket errors" not in out and "Non-2xx" not in out, f"{header}: {out}")
    with t.case("every answer is right during reloads"):
        running = t.begin("client", [*load, "3"])
        for _ in range(3):
            time.sleep(0.6)
            t.call("server", nginx.argv("-s", "reload"))
        out, err = running.communicate(timeout=60)
        check(running.returncode == 0 and int(out) > 10, f"http_load: {out.decode()} {err.decode()[-300:]}")
    with t.case("a killed worker is replaced"):
        before = set(children(nginx.pid()))
        os.kill(min(before), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not set(children(nginx.pid())) - before:
            check(time.monotonic() < deadline, "no new worker within 10 s")
            time.sleep(0.02)
        check(int(t.call("client", [*load, "1"])) > 10, "few answers after the worker died")
    with t.case("no worker crashed, and it stops when told"):
        log = nginx.error_log.read_text()
        crashed = [line for line in log.splitlines() if "exited on signal" in line and "exited on signal 9" not in line]
        check(not crashed, f"crashed: {crashed}")
        master = nginx.pid()
        t.call("server", nginx.argv("-s", "quit"))
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{master}") and open(f"/proc/{master}/stat").read().rpartition(")")[2].split()[0] != "Z":
            check(time.monotonic() < deadline, "the master still runs 10 s after quit")
            time.sleep(0.02)


def files(www):
    """Makes the files that are served; returns their checksums by name."""
    chance, sums = random.Random(3), {}
    for name, size in (("small", 600), ("page", 20_000), ("picture", 300_000), ("large", 64_000_000)):
        data = chance.randbytes(size)
        (www / name).write_bytes(data)
        sums[name] = hashlib.sha256(data).hexdigest()
    return sums
