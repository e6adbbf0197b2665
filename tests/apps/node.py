"""Node.js: an HTTP server and a client with a keep-alive agent, uploads as streams, raw net sockets with half-close."""

from harness import ports
from harness.run import check, equal

NEEDS = ["node=nodejs"]


def run(t):
    port = ports.free_port()
    server = t.start("server", ["node", t.programs / "node_server.js", port], port=port)
    for what in ("requests", "upload", "raw"):
        with t.case({"requests": "2000 requests, 20 at a time, over kept connections", "upload": "10 streamed uploads of 5 MB",
                     "raw": "50 raw sockets, each answered after its half-close"}[what]):
            equal(t.call("client", ["node", t.programs / "node_client.js", port, what]), "ok\n", f"node_client {what}")
            check(server.poll() is None, f"the server ended: {t.tail('node.log')}")
