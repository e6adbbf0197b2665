"""Keeps 20 HTTP connections open, each after 100 answered requests, and does nothing: python3 idle_client.py PORT

Prints `ready` when they are open, ends when its standard input ends."""

import http.client
import sys

connections = [http.client.HTTPConnection("127.0.0.1", int(sys.argv[1])) for _ in range(20)]
for connection in connections * 100:
    connection.request("GET", "/small")
    connection.getresponse().read()
print("ready", flush=True)
sys.stdin.read()
