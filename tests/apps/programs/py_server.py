"""Echo servers in the styles of Python's library: python3 py_server.py asyncio|asyncio-tls|ssl|fork|manager PORT"""

import asyncio
import multiprocessing.managers
import queue
import socketserver
import ssl
import sys

HOST = "127.0.0.1"


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain("cert.pem", "key.pem")
    return made


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def serve_asyncio(port: int, tls) -> None:
    server = await asyncio.start_server(echo, HOST, port, ssl=tls, backlog=200)
    await server.serve_forever()


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Tls(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def get_request(self):
        connection, address = super().get_request()
        # The handshake happens in the thread of the connection, at the first read.
        return context().wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address


class Forking(socketserver.ForkingTCPServer):
    max_children = 100


class Manager(multiprocessing.managers.BaseManager):
    """Shares one queue with other processes over TCP."""


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "asyncio":
        asyncio.run(serve_asyncio(port, None))
    elif kind == "asyncio-tls":
        asyncio.run(serve_asyncio(port, context()))
    elif kind == "ssl":
        Tls((HOST, port), Echo).serve_forever()
    elif kind == "fork":
        Forking((HOST, port), Echo).serve_forever()
    elif kind == "manager":
        shared: queue.Queue = queue.Queue()
        Manager.register("get_queue", callable=lambda: shared)
        Manager((HOST, port), authkey=b"secret").get_server().serve_forever()
