"""PostgreSQL over TCP: pgbench whose books must balance, large results, LISTEN/NOTIFY, a cancelled query, many short sessions."""

import hashlib
import signal
import time

from harness import servers
from harness.run import Failed, check, equal

NEEDS = ["/usr/lib/postgresql/*/bin/postgres=postgresql"]


def run(t):
    port = servers.postgres(t)
    programs = servers.postgres_programs()
    bench = [programs / "pgbench", "-h", servers.HOST, "-p", port, "-U", "postgres", "-n", "postgres"]

    def sql(text, **more):
        return servers.psql(t, port, text, **more)

    with t.case("pgbench -i and TPC-B with 4 clients: the books balance"):
        t.call("client", [programs / "pgbench", "-i", "-q", "-s", "1", "-h", servers.HOST, "-p", port, "-U", "postgres", "postgres"])
        out = t.call("client", [*bench, "-c", "4", "-j", "2", "-t", "300"])
        check("number of transactions actually processed: 1200/1200" in out and "failed transactions: 0 " in out, out)
        sums = sql("select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), "
                   "(select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history), "
                   "(select count(*) from pgbench_history)").split("|")
        equal(len(set(sums[:4])), 1, f"different sums among {sums}")
        equal(sums[4], "1200", "rows of history")
    with t.case("pgbench -S: simple, extended, prepared and pipelined"):
        for mode in ("simple", "extended", "prepared"):
            out = t.call("client", [*bench, "-S", "-M", mode, "-c", "4", "-t", "500"])
            check("processed: 2000/2000" in out, out)
        (t.dir / "pipeline.sql").write_text("\\startpipeline\n" + "select 1;\n" * 50 + "\\endpipeline\n")
        out = t.call("client", [*bench, "-M", "extended", "-f", t.dir / "pipeline.sql", "-c", "2", "-t", "50"])
        check("processed: 100/100" in out, out)
    with t.case("a result of 30 MB and COPY both ways"):
        got = sql("select repeat(md5(i::text), 100) from generate_series(1, 9000) i")
        wanted = "\n".join(hashlib.md5(str(i).encode()).hexdigest() * 100 for i in range(1, 9001))
        check(got == wanted, f"{len(got)} characters instead of {len(wanted)}, or different ones")
        sql("create table copied (n int, word text)")
        rows = "".join(f"{n}\t{hashlib.md5(str(n).encode()).hexdigest()}\n" for n in range(100_000))
        client = [programs / "psql", "-X", "-q", "-h", servers.HOST, "-p", port, "-U", "postgres", "-c"]
        t.call("client", [*client, "copy copied from stdin"], stdin=rows.encode())
        check(t.call("client", [*client, "copy (select * from copied order by n) to stdout"]) == rows, "COPY out differs from COPY in")
    with t.case("NOTIFY reaches a session that listens"):
        out = sql("listen news; notify news, 'hello'; select 1")
        check('"news" with payload "hello"' in out, out)
    with t.case("an interrupted query ends at once and the server goes on"):
        query = t.begin("client", [programs / "psql", "-X", "-h", servers.HOST, "-p", port, "-U", "postgres", "-c", "select pg_sleep(60)"])
        wait_until(lambda: sql("select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'") == "1")
        query.send_signal(signal.SIGINT)
        _, err = query.communicate(timeout=15)
        check(b"canceling statement due to user request" in err, f"psql said {err.decode()}")
        equal(sql("select 6 * 7"), "42", "answer after the cancel")
    with t.case("a terminated session is an error for its client, not an end"):
        query = t.begin("client", [programs / "psql", "-X", "-h", servers.HOST, "-p", port, "-U", "postgres", "-c", "select pg_sleep(59)"])
        wait_until(lambda: sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where query = 'select pg_sleep(59)'") == "1")
        _, err = query.communicate(timeout=15)
        check(query.returncode != 0 and b"terminating connection due to administrator command" in err, f"psql said {err.decode()}")
    with t.case("200 sessions one after the other"):
        out = t.call("client", [*bench, "-S", "-C", "-c", "4", "-t", "50"])
        check("processed: 200/200" in out, out)
    with t.case("no backend crashed"):
        servers.free_of_crashes(t, t.dir / "postgres.log")


def wait_until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"still not so after {seconds} s")
        time.sleep(0.05)
