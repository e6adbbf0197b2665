"""Apache with the prefork module: concurrent keep-alive clients, checked bodies, CGI (a fork and an exec in the server), a graceful restart."""

import os
import time

from harness import ports, servers
from harness.run import PYTHON, check, equal

NEEDS = ["apache2=apache2", "ab=apache2-utils", "curl=curl"]

CGI = """#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
cat | sha256sum
"""


def run(t):
    port = ports.free_port()
    www, log, pid_file = t.dir / "www", t.dir / "error.log", t.dir / "apache.pid"
    www.mkdir()
    for name, size in (("small", 700), ("page", 25_000), ("picture", 350_000)):
        (www / name).write_bytes(bytes(i * 11 % 253 for i in range(size)))
    (www / "large").write_bytes(bytes(range(256)) * 100_000)
    (t.dir / "cgi").mkdir()
    (t.dir / "cgi" / "sum").write_text(CGI)
    (t.dir / "cgi" / "sum").chmod(0o755)
    modules = "\n".join(f"LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so" for m in ("mpm_prefork", "authz_core", "cgi", "alias"))
    identity = "User www-data\nGroup www-data" if os.geteuid() == 0 else ""
    (t.dir / "apache.conf").write_text(f"""
{modules}
{identity}
ServerRoot {t.dir}
ServerName localhost
Listen {servers.HOST}:{port}
PidFile {pid_file}
ErrorLog {log}
DocumentRoot {www}
DefaultRuntimeDir {t.dir}
Mutex file:{t.dir}
StartServers 2
MinSpareServers 2
MaxRequestWorkers 20
MaxConnectionsPerChild 500
KeepAlive On
MaxKeepAliveRequests 1000
ScriptAlias /cgi/ {t.dir}/cgi/
""")
    argv = ["apache2", "-d", t.dir, "-f", t.dir / "apache.conf"]
    t.start("server", [*argv, "-D", "FOREGROUND"], port=port, log="apache.log")
    url = f"http://{servers.HOST}:{port}"
    load = [PYTHON, t.programs / "http_load.py", url, www, "4"]

    with t.case("ab with keep-alive and without: no failed request"):
        for more in (["-k"], []):
            out = t.call("client", ["ab", "-q", *more, "-c", "10", "-n", "2000", f"{url}/small"])
            fields = {key: value.split() for key, _, value in (line.partition(":") for line in out.splitlines())}
            equal(fields["Complete requests"], ["2000"], "complete requests")
            equal(fields["Failed requests"], ["0"], "failed requests")
            equal(fields["HTML transferred"][0], str(2000 * 700), "bytes")
    with t.case("every body is right, also 25 MB"):
        check(int(t.call("client", [*load, "1.5"])) > 10, "few answers")
        equal(t.call_bytes("client", ["curl", "-sS", f"{url}/large"]), bytes(range(256)) * 100_000, "large")
    with t.case("a CGI program gets 3 MB and answers"):
        data = os.urandom(3_000_000)
        (t.dir / "data").write_bytes(data)
        wanted = t.call("none", ["sha256sum"], stdin=data)
        for _ in range(5):
            equal(t.call("client", ["curl", "-sS", "--data-binary", f"@{t.dir}/data", f"{url}/cgi/sum"]), wanted, "checksum by CGI")
    with t.case("every answer is right during graceful restarts"):
        running = t.begin("client", [*load, "3"])
        for _ in range(2):
            time.sleep(0.8)
            t.call("server", [*argv, "-k", "graceful"])
        out, err = running.communicate(timeout=60)
        check(running.returncode == 0 and int(out) > 10, f"http_load: {out.decode()} {err.decode()[-300:]}")
    with t.case("no child crashed"):
        servers.free_of_crashes(t, log)
