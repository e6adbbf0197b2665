"""An HTTP/1.1 server that stores what is PUT and serves it again, with ranges: python3 http_store.py PORT

PUT answers with the SHA-256 of the body. /small.N is made up; /cut promises more than it sends; /nothing closes without an answer."""

import hashlib
import http.server
import re
import sys

stored: dict[str, bytes] = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        stored[self.path] = body
        self.answer(200, hashlib.sha256(body).hexdigest().encode())

    def do_GET(self) -> None:
        if self.path == "/nothing":
            self.close_connection = True
        elif self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"x" * 50_000)
            self.close_connection = True
        elif self.path.startswith("/small."):
            self.answer(200, self.path[1:].encode() * 500)
        elif self.path in stored:
            self.serve(stored[self.path])
        else:
            self.answer(404, b"no such thing")

    def serve(self, body: bytes) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            self.answer(200, body)
            return
        first, last = int(wanted[1]), int(wanted[2] or len(body) - 1)
        self.answer(206, body[first:last + 1], {"Content-Range": f"bytes {first}-{last}/{len(body)}"})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words) -> None:
        """Nothing to say about each request."""


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
