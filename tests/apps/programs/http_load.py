"""Keeps asking an HTTP server for the files of a folder and compares every byte:

    python3 http_load.py URL FOLDER THREADS SECONDS

Prints how many answers were right; any wrong one, and any connection that breaks in the middle of an answer, is the end. A server may
close an idle connection between two requests (RFC 9112, 9.3.1): then the request is sent again on a new one, once."""

import http.client
import random
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

MAX_SIZE = 1_000_000  # larger files take too long for a load test
right: list[int] = []
wrong: list[str] = []


def worker(address: str, files: dict[str, bytes], seed: int, until: float) -> None:
    chance, connection, fresh, count = random.Random(seed), http.client.HTTPConnection(address, timeout=20), True, 0
    while time.monotonic() < until and not wrong:
        name = chance.choice(sorted(files))
        try:
            connection.request("GET", f"/{name}", headers={"Connection": "close"} if chance.random() < 0.1 else {})
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            if fresh:
                raise ValueError(f"a new connection was closed without an answer: {error!r}") from None
            connection.close()
            fresh = True
            continue
        body = answer.read()
        if answer.status != 200 or body != files[name]:
            raise ValueError(f"/{name}: status {answer.status}, {len(body)} of {len(files[name])} bytes, same: {body == files[name]}")
        fresh = answer.will_close
        count += 1
    right.append(count)


def guarded(*arguments) -> None:
    try:
        worker(*arguments)
    except (OSError, ValueError, http.client.HTTPException) as error:
        wrong.append(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    url, folder, threads, seconds = sys.argv[1:]
    kept = {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.is_file() and p.stat().st_size <= MAX_SIZE}
    end = time.monotonic() + float(seconds)
    running = [threading.Thread(target=guarded, args=(urlsplit(url).netloc, kept, n, end)) for n in range(int(threads))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if wrong:
        sys.exit("; ".join(wrong))
    print(sum(right))
