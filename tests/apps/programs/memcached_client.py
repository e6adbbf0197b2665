"""Many memcached connections in one thread each, every value checked: python3 memcached_client.py PORT CONNECTIONS; prints `ok`."""

import random
import socket
import sys
import threading

SIZES = [1, 20, 100, 1023, 1024, 4096, 10_000, 65_536, 300_000, 1 << 20]
wrong: list[str] = []


def worker(port: int, number: int) -> None:
    chance = random.Random(number)
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        reader = connection.makefile("rb")

        def line() -> bytes:
            return reader.readline().rstrip(b"\r\n")

        kept = {}
        for size in SIZES:
            key = f"k{number}.{size}".encode()
            kept[key] = chance.randbytes(size)
            connection.sendall(b"set %b %d 0 %d\r\n%b\r\n" % (key, number, size, kept[key]))
            if (answer := line()) != b"STORED":
                raise ValueError(f"set {key}: {answer}")
        for _ in range(30):
            some = chance.sample(sorted(kept), 3)
            connection.sendall(b"get " + b" ".join(some) + b"\r\n")
            got = {}
            while (header := line()) != b"END":
                _, key, flags, size = header.split()
                got[key] = reader.read(int(size) + 2)[:-2]
                if int(flags) != number:
                    raise ValueError(f"flags {flags} of {key}")
            if got != {key: kept[key] for key in some}:
                raise ValueError(f"connection {number}: values of {some} differ")
        connection.sendall(b"set n%d 0 0 1\r\n0\r\n" % number + b"incr n%d 3\r\n" % number * 100)
        if line() != b"STORED" or [int(line()) for _ in range(100)] != list(range(3, 303, 3)):
            raise ValueError(f"connection {number}: counter wrong")


def guarded(port: int, number: int) -> None:
    try:
        worker(port, number)
    except (OSError, ValueError) as error:
        wrong.append(str(error))


if __name__ == "__main__":
    threads = [threading.Thread(target=guarded, args=(int(sys.argv[1]), n)) for n in range(int(sys.argv[2]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("; ".join(wrong) or "ok")
