"""OpenSSH: client to a server of our own (keys, port and configuration in the run's directory): commands, data both ways, sftp, forwarding."""

import contextlib
import getpass
import hashlib
import os
import subprocess
import time

from harness import ports, servers
from harness.run import PYTHON, check, descendants, equal

NEEDS = ["sshd=openssh-server", "ssh=openssh-client", "sftp=openssh-client", "ssh-keygen=openssh-client"]


def run(t):
    port = ports.free_port()
    for key in ("host", "user"):
        t.call("none", ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", t.dir / key])
    (t.dir / "authorized").write_text((t.dir / "user.pub").read_text())
    (t.dir / "known").write_text(f"[{servers.HOST}]:{port} {(t.dir / 'host.pub').read_text()}")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # sshd wants its empty folder; the service that makes it does not run here
    (t.dir / "sshd_config").write_text(f"""
Port {port}
ListenAddress {servers.HOST}
HostKey {t.dir}/host
AuthorizedKeysFile {t.dir}/authorized
PidFile {t.dir}/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
Subsystem sftp internal-sftp
""")
    t.start("server", ["/usr/sbin/sshd", "-D", "-e", "-f", t.dir / "sshd_config"], port=port, log="sshd.log")
    options = ["-F", "/dev/null", "-i", t.dir / "user", "-o", f"UserKnownHostsFile={t.dir}/known", "-o", "BatchMode=yes", "-o",
               "ConnectTimeout=20"]
    here = f"{getpass.getuser()}@{servers.HOST}"
    ssh = ["ssh", "-p", port, *options, here]

    with t.case("commands and their exit status"):
        for n in range(5):
            equal(t.call("client", [*ssh, f"echo {n}; exit {n}"], status=n), f"{n}\n", "output")
    with t.case("20 MB in and 20 MB out"):
        data = os.urandom(20_000_000)
        equal(t.call("client", [*ssh, "sha256sum"], stdin=data).split()[0], hashlib.sha256(data).hexdigest(), "checksum of what arrived")
        equal(t.call_bytes("client", [*ssh, "cat"], stdin=data), data, "what came back")
    with t.case("sftp puts and gets a file"):
        (t.dir / "data").write_bytes(data)
        t.call("client", ["sftp", "-q", "-P", port, *options, "-b", "-", here],
               stdin=f"put {t.dir}/data {t.dir}/put\nget {t.dir}/put {t.dir}/got\n".encode())
        check((t.dir / "got").read_bytes() == data, "the file differs")
    with t.case("an HTTP server through a forwarded port"):
        www = t.dir / "www"
        www.mkdir()
        for name, size in (("small", 700), ("picture", 350_000)):
            (www / name).write_bytes(bytes(i * 13 % 249 for i in range(size)))
        web, local = ports.free_port(), ports.free_port()
        t.start("server", [PYTHON, "-m", "http.server", "--bind", servers.HOST, "--directory", www, web], port=web, log="http.log")
        forward = t.begin("client", [*ssh[:-1], "-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{servers.HOST}:{local}:{servers.HOST}:{web}", here])
        ports.wait_listening(local, lambda: forward.poll() is None)
        check(int(t.call("client", [PYTHON, t.programs / "http_load.py", f"http://{servers.HOST}:{local}", www, 3, 1.5])) > 10, "few answers")
        t.end(forward)
    with t.case("a killed client leaves no session behind"):
        running = t.begin("client", [*ssh, "cat"], stdin=subprocess.PIPE)
        running.stdin.write(b"there\n")
        running.stdin.flush()
        equal(running.stdout.readline(), b"there\n", "echo")
        check(sessions() > 0, "no session among the processes")
        running.kill()
        running.wait()
        deadline = time.monotonic() + 10
        while sessions():
            check(time.monotonic() < deadline, f"{sessions()} sessions are still there 10 s later")
            time.sleep(0.05)


def sessions():
    """How many sshd processes serve a connection (their titles name a user)."""
    count = 0
    for pid in descendants():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                count += line.read().startswith(b"sshd: " + getpass.getuser().encode())
    return count
