"""Python: http.server, asyncio (plain and TLS), ssl in threads, multiprocessing over TCP, socketserver that forks."""

from harness import ports, servers
from harness.run import PYTHON, check, equal

NEEDS = [f"{PYTHON}=python3", "openssl=openssl"]


def run(t):
    www = t.dir / "www"
    www.mkdir()
    for name, size in (("small", 700), ("page", 25_000), ("picture", 350_000)):
        (www / name).write_bytes(bytes(i * 13 % 249 for i in range(size)))
    t.call("none", ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"])

    with t.case("http.server: every body is right"):
        port = ports.free_port()
        t.start("server", [PYTHON, "-m", "http.server", "--bind", servers.HOST, "--directory", www, port], port=port, log="http.log")
        check(int(t.call("client", [PYTHON, t.programs / "http_load.py", f"http://{servers.HOST}:{port}", www, 2, 1.5])) > 10, "few answers")
    for kind, what in (("asyncio", "100 connections echo through asyncio streams"), ("asyncio-tls", "asyncio over TLS"),
                       ("ssl", "TLS in threads, with half-close at the end"), ("fork", "a process for each connection"),
                       ("manager", "multiprocessing: manager, queue and connection over TCP")):
        with t.case(what):
            port = ports.free_port()
            server = t.start("server", [PYTHON, t.programs / "py_server.py", kind, port], port=port, log=f"{kind}.log")
            equal(t.call("client", [PYTHON, t.programs / "py_client.py", kind, port]), "ok\n", f"py_client {kind}")
            check(server.poll() is None, f"the server ended: {t.tail(f'{kind}.log')}")
            t.end(server)
