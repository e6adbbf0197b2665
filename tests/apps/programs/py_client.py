"""The other end of py_server.py, every byte checked: python3 py_client.py asyncio|asyncio-tls|ssl|fork|manager PORT; prints `ok`."""

import asyncio
import multiprocessing
import multiprocessing.managers
import random
import socket
import ssl
import sys
import threading

HOST = "127.0.0.1"


def context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile="cert.pem")


def same(got: bytes, wanted: bytes) -> None:
    if got != wanted:
        raise SystemExit(f"{len(got)} bytes came back for {len(wanted)}, or different ones")


async def talk(number: int, port: int, tls) -> None:
    reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
    chance = random.Random(number)
    for size in (1, 100, 5_000, 70_000, 300_000, 1, 1):
        data = chance.randbytes(size)
        writer.write(data)
        same(await reader.readexactly(size), data)
    writer.close()
    await writer.wait_closed()


async def talk_many(port: int, tls, count: int) -> None:
    await asyncio.wait_for(asyncio.gather(*[talk(n, port, tls) for n in range(count)]), 40)


def blocking(number: int, port: int, tls) -> None:
    connection = socket.create_connection((HOST, port), 20)
    if tls:
        connection = tls.wrap_socket(connection, server_hostname=HOST)
    chance = random.Random(number)
    with connection:
        for size in (1, 100, 5_000, 70_000, 1, 1):
            data = chance.randbytes(size)
            connection.sendall(data)
            same(read(connection, size), data)
        if tls:
            connection.unwrap().close()
        else:
            connection.shutdown(socket.SHUT_WR)
            same(connection.recv(1), b"")


def read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size and (part := connection.recv(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def in_threads(count: int, port: int, tls) -> None:
    wrong = []

    def one(number: int) -> None:
        try:
            blocking(number, port, tls)
        except (OSError, SystemExit) as error:
            wrong.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"{len(wrong)} of {count} failed, first: {wrong[0]!r}")


class Manager(multiprocessing.managers.BaseManager):
    """The proxy of the server's manager."""


def size_of(turn: int) -> int:
    # multiprocessing sends more than 16 KiB in two writes, which costs kernel TCP a delayed acknowledgement each time: only one does.
    return 200_000 if turn == 25 else turn * 300


def work(port: int, number: int) -> None:
    Manager.register("get_queue")
    manager = Manager((HOST, port), authkey=b"secret")
    manager.connect()
    shared = manager.get_queue()
    for turn in range(50):
        shared.put((number, turn, b"x" * size_of(turn)))


def manager(port: int) -> None:
    multiprocessing.current_process().authkey = b"secret"
    Manager.register("get_queue")
    proxy = Manager((HOST, port), authkey=b"secret")
    proxy.connect()
    workers = [multiprocessing.Process(target=work, args=(port, n)) for n in range(4)]
    for worker in workers:
        worker.start()
    shared = proxy.get_queue()
    got = [shared.get(timeout=20) for _ in range(200)]
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit(f"workers ended with {[worker.exitcode for worker in workers]}")
    for number in range(4):
        same(b"".join(data for n, _, data in got if n == number), b"".join(b"x" * size_of(turn) for turn in range(50)))
        if [turn for n, turn, _ in got if n == number] != list(range(50)):
            raise SystemExit(f"the items of worker {number} are out of order")


if __name__ == "__main__":
    kind, where = sys.argv[1], int(sys.argv[2])
    if kind == "asyncio":
        asyncio.run(talk_many(where, None, 100))
    elif kind == "asyncio-tls":
        asyncio.run(talk_many(where, context(), 30))
    elif kind == "ssl":
        in_threads(20, where, context())
    elif kind == "fork":
        in_threads(20, where, None)
    elif kind == "manager":
        manager(where)
    print("ok")
