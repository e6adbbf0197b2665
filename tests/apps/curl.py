"""curl: downloads and uploads of all kinds against a small Python server, many at a time, resumed, slow, chunked, cut short."""

import hashlib
import os

from harness import ports, servers
from harness.run import PYTHON, check, equal

NEEDS = ["curl=curl"]


def run(t):
    port = ports.free_port()
    t.start("server", [PYTHON, t.programs / "http_store.py", port], port=port)
    url = f"http://{servers.HOST}:{port}"
    data = os.urandom(12_000_000)
    (t.dir / "data").write_bytes(data)
    sum_of_data = hashlib.sha256(data).hexdigest()

    def curl(*options, **more):
        return t.call_bytes("client", ["curl", "-sS", "--max-time", "30", *options], **more)

    with t.case("an upload with Expect: 100-continue, and the download of it"):
        equal(curl("-T", t.dir / "data", f"{url}/data").decode(), sum_of_data, "checksum of the upload")
        equal(hashlib.sha256(curl(f"{url}/data")).hexdigest(), sum_of_data, "checksum of the download")
    with t.case("an upload from a pipe (chunked)"):
        equal(curl("-T", "-", f"{url}/piped", stdin=data).decode(), sum_of_data, "checksum")
    with t.case("a download resumed in the middle"):
        (t.dir / "part").write_bytes(data[:5_000_001])
        curl("-C", "-", "-o", t.dir / "part", f"{url}/data")
        check((t.dir / "part").read_bytes() == data, "the resumed file differs")
    with t.case("50 downloads over one connection, and 40 at a time"):
        curl("-o", f"{t.dir}/one.#1", f"{url}/small.[1-50]")
        curl("--parallel", "--parallel-max", "40", "-o", f"{t.dir}/many.#1", f"{url}/small.[1-120]")
        for prefix, count in (("one", 50), ("many", 120)):
            for n in range(1, count + 1):
                check((t.dir / f"{prefix}.{n}").read_bytes() == f"small.{n}".encode() * 500, f"{prefix}.{n} differs")
    with t.case("a limited rate"):
        check(curl("--limit-rate", "5M", f"{url}/data") == data, "the file differs")
    with t.case("a body cut short is an error, an early close too"):
        for what, status in (("cut", 18), ("nothing", 52)):
            t.call("client", ["curl", "-sS", "-o", "/dev/null", "--max-time", "20", f"{url}/{what}"], status=status)
    with t.case("a port where nobody listens is refused"):
        t.call("client", ["curl", "-sS", f"http://{servers.HOST}:{ports.free_port()}/"], status=7)
