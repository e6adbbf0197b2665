"""An rsync daemon: a tree of 500 files up and down, changes only, a large file, compression; both trees the same afterwards."""

import random

from harness import ports, servers
from harness.run import check, equal

NEEDS = ["rsync=rsync", "diff=diffutils"]


def run(t):
    port = ports.free_port()
    tree, store, back = t.dir / "tree", t.dir / "store", t.dir / "back"
    chance = random.Random(4)
    for folder in (tree, store, back):
        folder.mkdir()
    for n in range(500):
        place = tree / f"d{n % 10}"
        place.mkdir(exist_ok=True)
        (place / f"f{n}").write_bytes(chance.randbytes(n * 61))
    (tree / "large").write_bytes(chance.randbytes(30_000_000))
    (t.dir / "rsyncd.conf").write_text(f"""
port = {port}
address = {servers.HOST}
use chroot = no
pid file = {t.dir}/rsyncd.pid
log file = {t.dir}/rsyncd.log
[store]
path = {store}
read only = no
uid = {servers.os.geteuid()}
gid = {servers.os.getegid()}
""")
    t.start("server", ["rsync", "--daemon", "--no-detach", "--config", t.dir / "rsyncd.conf"], port=port, log="rsync.log")
    url = f"rsync://{servers.HOST}:{port}/store/"

    def sync(*words):
        return t.call("client", ["rsync", "-a", "--stats", *words])

    with t.case("a tree of 500 files and 30 MB goes up and comes back"):
        sync(f"{tree}/", url)
        t.call("none", ["diff", "-r", tree, store])
        sync(url, f"{back}/")
        t.call("none", ["diff", "-r", tree, back])
    with t.case("only the difference of a changed large file travels"):
        with open(tree / "large", "r+b") as large:
            large.seek(10_000_000)
            large.write(b"changed")
        out = sync("--checksum", "--no-whole-file", f"{tree}/", url)
        literal = next(line for line in out.splitlines() if line.startswith("Literal data"))
        check(int(literal.split()[2].replace(",", "")) < 100_000, literal)
        t.call("none", ["diff", "-r", tree, store])
    with t.case("deletions and compression"):
        for n in range(0, 500, 7):
            (tree / f"d{n % 10}" / f"f{n}").unlink()
        sync("-z", "--delete", f"{tree}/", url)
        t.call("none", ["diff", "-r", tree, store])
        equal(sum(1 for _ in store.rglob("f*")), 500 - 72, "files left")
