"""The servers that both the application tests and the benchmark use, each started with a configuration of its own.

Every function starts one server on the server end of a `Run`, waits until it listens, and returns what its clients need."""

import glob
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import ports
from .run import Failed, Run, own, as_user

HOST = "127.0.0.1"


def redis(run: Run, *extra: str, port: int | None = None) -> int:
    """A redis without persistence. Returns its port."""
    port = port or ports.free_port()
    home = run.dir / f"redis-{port}"
    home.mkdir()
    run.start("server", ["redis-server", "--port", port, "--bind", HOST, "--save", "", "--appendonly", "no", "--dir", home, *extra],
              port=port, log=f"redis-{port}.log")
    return port


def memcached(run: Run, *extra: str) -> int:
    """A memcached with two worker threads. Returns its port."""
    port = ports.free_port()
    identity = ["-u", "nobody"] if os.geteuid() == 0 else []
    run.start("server", ["memcached", "-l", HOST, "-p", port, "-U", "0", "-m", "256", "-t", "2", *identity, *extra], port=port)
    return port


def nginx(run: Run, *, daemon: bool = False, http: str = "", server: str = "", location: str = "") -> "Nginx":
    """An nginx with two workers that serves `run.dir/www`. The strings are added to the blocks of that name."""
    return Nginx(run, daemon, http, server, location)


class Nginx:
    """A running nginx: `port`, `www` (the folder it serves) and `pid_file`."""

    def __init__(self, run: Run, daemon: bool, http: str, server: str, location: str):
        self.run, self.port = run, ports.free_port()
        self.www = run.dir / "www"
        self.www.mkdir(exist_ok=True)
        home = run.dir / f"nginx-{self.port}"
        home.mkdir()
        self.pid_file = home / "nginx.pid"
        self.error_log = home / "error.log"
        self.conf = home / "nginx.conf"
        user = "user www-data;" if os.geteuid() == 0 else ""
        self.conf.write_text(f"""
{user}
daemon {'on' if daemon else 'off'};
worker_processes 2;
pid {self.pid_file};
error_log {self.error_log} notice;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    keepalive_requests 1000000;
    {http}
    server {{
        listen {HOST}:{self.port};
        root {self.www};
        {server}
        location / {{ {location} }}
    }}
}}
""")
        run.start("server", self.argv(), port=self.port, detaches=daemon, log="nginx.log")

    def argv(self, *extra: str) -> list:
        """The command line that starts this nginx, or with `-s reload` talks to it."""
        return ["nginx", "-c", self.conf, "-p", self.conf.parent, "-e", self.error_log, *extra]

    def pid(self) -> int:
        """The pid of its master process."""
        return int(self.pid_file.read_text())


def iperf3(run: Run) -> int:
    """An iperf3 server. Returns its port."""
    port = ports.free_port()
    run.start("server", ["iperf3", "-s", "-B", HOST, "-p", port], port=port, log="iperf3-server.log")
    return port


def postgres_programs() -> Path:
    """The folder of the newest PostgreSQL on this machine."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda p: int(p.split("/")[4]))
    if not found:
        raise Failed("no PostgreSQL under /usr/lib/postgresql")
    return Path(found[-1]).parent


_template: tempfile.TemporaryDirectory | None = None


def _empty_cluster() -> Path:
    """An initialised data directory, made once in each process and copied for every server."""
    global _template
    if _template is None:
        _template = tempfile.TemporaryDirectory(prefix="rsock-initdb-")
        own(Path(_template.name), "postgres")
        made = subprocess.run([postgres_programs() / "initdb", "-D", f"{_template.name}/data", "-U", "postgres", "--auth=trust",
                               "--no-sync", "--locale=C", "--encoding=UTF8"], stdin=subprocess.DEVNULL, capture_output=True,
                              cwd="/", text=True, **as_user("postgres"))
        if made.returncode != 0:
            raise Failed(f"initdb: {made.stderr.strip()}")
    return Path(_template.name) / "data"


def postgres(run: Run) -> int:
    """A PostgreSQL (user postgres, no password), never on root's behalf. Returns its port."""
    port, home = ports.free_port(), run.dir / "postgres"
    home.mkdir()
    own(home, "postgres")
    copied = subprocess.run(["cp", "-a", _empty_cluster(), home / "data"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            **as_user("postgres"))
    if copied.returncode != 0:
        raise Failed(f"copying the empty cluster: {copied.stderr.strip()}")
    run.start("server", [postgres_programs() / "postgres", "-D", home / "data", "-c", f"listen_addresses={HOST}", "-c", f"port={port}",
                         "-c", f"unix_socket_directories={home}", "-c", "fsync=off", "-c", "shared_buffers=64MB"],
              port=port, user="postgres", log="postgres.log")
    return port


def psql(run: Run, port: int, sql: str, *, side: str = "client", timeout: float = 60, database: str = "postgres") -> str:
    """Runs statements over TCP and returns what they print, bare."""
    return run.call(side, [postgres_programs() / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", HOST, "-p", port, "-U",
                           "postgres", "-d", database, "-c", sql], timeout=timeout).strip()


def free_of_crashes(run: Run, *logs: Path) -> None:
    """Fails when a server's log tells of a process that died by a signal."""
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            if any(word in line for word in ("exited on signal", "exit signal Segmentation", "was terminated by signal", "exit signal Abort")):
                raise Failed(f"a process of the server crashed: {line.strip()}")
