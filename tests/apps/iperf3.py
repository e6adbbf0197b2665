"""iperf3: one stream, four, the other way round, both ways at once, without delay and with small blocks; the byte counts agree."""

import json
import time

from harness import servers
from harness.run import check, equal

NEEDS = ["iperf3=iperf3"]


def run(t):
    port = servers.iperf3(t)

    def measure(*options):
        for _ in range(20):
            out = json.loads(t.call("client", ["iperf3", "-c", servers.HOST, "-p", port, "-J", "-i", "0", *options], status=None))
            # The server serves one test at a time, and may still be at the end of the last one.
            if "the server is busy" not in out.get("error", ""):
                break
            time.sleep(0.1)
        check("error" not in out, out.get("error"))
        return out

    for what, options, streams in (
        ("one stream of 1 GB", ["-n", "1000M"], 1),
        ("four streams", ["-n", "400M", "-P", "4"], 4),
        ("reverse", ["-n", "400M", "-R"], 1),
        ("no delay, blocks of 1000 bytes", ["-n", "20M", "-N", "-l", "1000"], 1),
        ("for a second, limited to 500 Mbit/s", ["-t", "1", "-b", "500M"], 1),
    ):
        with t.case(what):
            got = measure(*options)
            sent, received = got["end"]["sum_sent"]["bytes"], got["end"]["sum_received"]["bytes"]
            equal(len(got["end"]["streams"]), streams, "streams")
            # What is still in flight when the test ends is thrown away by iperf3 itself.
            check(0.8 * sent <= received <= sent, f"sent {sent}, received {received}")
    with t.case("both ways at once"):
        got = measure("-t", "1", "--bidir")
        check(got["end"]["sum_received"]["bytes"] > 0 and got["end"]["sum_received_bidir_reverse"]["bytes"] > 0, str(got["end"])[:300])
