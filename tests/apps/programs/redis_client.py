"""A redis client that checks every answer: python3 redis_client.py PORT values|pipeline|publish|block; prints `ok`."""

import random
import socket
import sys
import threading
import time


class Client:
    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def send(self, *words) -> None:
        self.socket.sendall(encode(*words))

    def answer(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise SystemExit(f"the connection ended inside an answer: {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.reader.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.answer() for _ in range(int(rest))]
        raise SystemExit(f"unexpected answer {line!r}")

    def ask(self, *words):
        self.send(*words)
        return self.answer()


def encode(*words) -> bytes:
    parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def expect(got, wanted) -> None:
    if got != wanted:
        raise SystemExit(f"got {repr(got)[:80]}, wanted {repr(wanted)[:80]}")


def values(port: int) -> None:
    client, chance = Client(port), random.Random(1)
    sizes = [1, 2, 15, 16, 17, 1000, 4095, 4096, 65_535, 65_536, 131_071, 131_073, 1_000_003, 8 << 20]
    kept = {}
    for size in sizes:
        kept[size] = chance.randbytes(size)
        expect(client.ask("SET", f"v{size}", kept[size]), b"OK")
        expect(client.ask("GET", f"v{size}"), kept[size])
    for size in sizes:
        expect(client.ask("STRLEN", f"v{size}"), size)
    other = Client(port)
    expect(other.ask("MGET", *[f"v{size}" for size in sizes]), [kept[size] for size in sizes])


def pipeline(port: int) -> None:
    client = Client(port)
    client.ask("DEL", "counter")
    count = 20_000
    # A thread sends while the main one reads, so that neither side's buffers can block both.
    sender = threading.Thread(target=lambda: [client.socket.sendall(encode("INCR", "counter") * 100) for _ in range(count // 100)])
    sender.start()
    for number in range(1, count + 1):
        expect(client.answer(), number)
    sender.join()


def publish(port: int) -> None:
    subscriber, publisher = Client(port), Client(port)
    expect(subscriber.ask("SUBSCRIBE", "news"), [b"subscribe", b"news", 1])
    messages = [random.Random(n).randbytes(n * 7 % 3000) for n in range(2_000)]
    for message in messages:
        publisher.send("PUBLISH", "news", message)
    for message in messages:
        expect(subscriber.answer(), [b"message", b"news", message])
    for _ in messages:
        expect(publisher.answer(), 1)


def block(port: int) -> None:
    waiting, pushing = Client(port), Client(port)
    for turn in range(20):
        waiting.send("BLPOP", "queue", 10)
        time.sleep(0.01)
        expect(pushing.ask("RPUSH", "queue", f"item{turn}"), 1)
        expect(waiting.answer(), [b"queue", f"item{turn}".encode()])


if __name__ == "__main__":
    {"values": values, "pipeline": pipeline, "publish": publish, "block": block}[sys.argv[2]](int(sys.argv[1]))
    print("ok")
