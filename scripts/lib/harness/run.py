"""Running one workload: a directory, an environment for each end, the processes that were started, and their end.

`Run` is one application in one combination: which of its two ends have librsock.so preloaded. Programs are started with LD_PRELOAD set
for them alone; the harness itself always runs plain."""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from . import ports

# Which ends are preloaded in each combination.
COMBOS = {
    "both": ("server", "client"),
    "client": ("client",),
    "server": ("server",),
    "none": (),
}
PYTHON = "/usr/bin/python3"

_PR_SET_CHILD_SUBREAPER = 36


def adopt_daemons() -> None:
    """Programs that daemonise become children of this process, so that none can be left behind."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Failed(Exception):
    """A check did not hold, or a program did not do what it should; the text says which."""


def check(holds, what: str) -> None:
    """Raises `Failed` with `what` unless it holds."""
    if not holds:
        raise Failed(what)


def equal(got, wanted, what: str) -> None:
    """Raises `Failed` unless both are the same."""
    if got != wanted:
        raise Failed(f"{what}: {_short(got)} instead of {_short(wanted)}")


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"


class Run:
    """One application in one combination, from the first server to the last clean-up. Use it in a `with`."""

    def __init__(self, name: str, combo: str, library: Path | None, settings: dict[str, str]):
        """`settings` are the RSOCK_* variables of preloaded programs."""
        if COMBOS[combo] and library is None:
            raise ValueError(f"combination {combo} needs a library to preload")
        self.name, self.combo, self.settings = name, combo, settings
        self._processes: list[subprocess.Popen] = []
        self._logs = []
        self.dir = Path(tempfile.mkdtemp(prefix=f"rsock-{name}-"))
        self.dir.chmod(0o755)  # servers that drop their privileges must get in
        self.library = None
        if COMBOS[combo]:
            # A copy: readable for every user, and no build replaces it during the run.
            self.library = self.dir / "librsock.so"
            shutil.copy(library, self.library)
            self.library.chmod(0o755)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_exception) -> None:
        self.end_all()

    def remove(self) -> None:
        """Forgets the directory with all logs."""
        shutil.rmtree(self.dir, ignore_errors=True)

    def preloaded(self, side: str) -> bool:
        """Does this end run with rsock?"""
        return side in COMBOS[self.combo]

    def environment(self, side: str, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of a program on this end."""
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("RSOCK_")}
        env["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        env["LC_ALL"] = "C.UTF-8"
        if self.preloaded(side):
            env["LD_PRELOAD"] = str(self.library)
            env.update(self.settings)
        env.update(extra or {})
        return env

    def start(self, side: str, argv: list, *, port: int | None = None, user: str | None = None,
              env: dict[str, str] | None = None, log: str | None = None, detaches: bool = False) -> subprocess.Popen:
        """Starts a server and waits until it listens on `port`. Its output goes to `log` in the directory.
        `user`: who it runs as, when the harness is root. `detaches`: the program ends at once and leaves a daemon behind."""
        argv = [str(a) for a in argv]
        output = open(self.dir / (log or f"{Path(argv[0]).name}.log"), "ab")
        self._logs.append(output)
        process = subprocess.Popen(argv, env=self.environment(side, env), cwd=self.dir, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, start_new_session=True, **as_user(user))
        self._processes.append(process)
        if detaches:
            status = self.wait(process, 20)
            check(status == 0, f"{argv[0]} ended with status {status} instead of going to the background: {self.tail(output.name)}")
        if port is not None:
            try:
                ports.wait_listening(port, lambda: detaches or process.poll() is None)
            except RuntimeError as error:
                raise Failed(f"{Path(argv[0]).name}: {error}: {self.tail(output.name)}") from None
        return process

    def call(self, side: str, argv: list, *, timeout: float = 45, stdin: bytes | None = None, user: str | None = None,
             env: dict[str, str] | None = None, status: int | None = 0) -> str:
        """Runs a client to its end and returns its standard output. Fails when it takes too long or ends with another
        status than `status` (None: any)."""
        return self.call_bytes(side, argv, timeout=timeout, stdin=stdin, user=user, env=env, status=status).decode(errors="replace")

    def call_bytes(self, side: str, argv: list, *, timeout: float = 45, stdin: bytes | None = None, user: str | None = None,
                   env: dict[str, str] | None = None, status: int | None = 0) -> bytes:
        """As `call`, the output as it came."""
        argv = [str(a) for a in argv]
        process = self.begin(side, argv, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, user=user, env=env)
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            where = stuck_where(process.pid)
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise Failed(f"{_name(argv)} did not finish in {timeout:.0f} s ({where}); its last words: {_tail(err or out)}") from None
        if status is not None and process.returncode != status:
            raise Failed(f"{_name(argv)} ended with {_status(process.returncode)}: {_tail(err or out)}")
        return out

    def begin(self, side: str, argv: list, *, stdin=subprocess.DEVNULL, user: str | None = None,
              env: dict[str, str] | None = None) -> subprocess.Popen:
        """Starts a client whose output is read by the caller; it is ended with everything else."""
        process = subprocess.Popen([str(a) for a in argv], env=self.environment(side, env), cwd=self.dir, stdin=stdin, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, **as_user(user))
        self._processes.append(process)
        return process

    def wait(self, process: subprocess.Popen, seconds: float) -> int:
        """The exit status; fails when the process is still there after so many seconds."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{_name(process.args)} (pid {process.pid}) still runs after {seconds:.0f} s ({stuck_where(process.pid)})") from None

    def end(self, process: subprocess.Popen, *, how: int = signal.SIGTERM, seconds: float = 20) -> int:
        """Asks a server to end and returns its exit status; fails when it does not end."""
        if process.poll() is None:
            process.send_signal(how)
        return self.wait(process, seconds)

    def end_all(self) -> None:
        """Ends whatever this run started, daemons included: politely, then by force."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and descendants():
            time.sleep(0.02)
            self._reap()
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and descendants():
            time.sleep(0.02)
            self._reap()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for output in self._logs:
            output.close()
        self._processes.clear()
        self._logs.clear()

    def _reap(self) -> None:
        for process in self._processes:
            process.poll()
        known = {p.pid for p in self._processes}
        for pid in children(os.getpid()):
            if pid not in known:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def tail(self, path) -> str:
        """The last words of a log in the directory."""
        try:
            return _tail((self.dir / path).read_bytes())
        except FileNotFoundError:
            return "(no log)"


def as_user(user: str | None) -> dict:
    """The arguments of `subprocess` that run a program as this user, when the harness is root."""
    if user is None or os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def own(path: Path, user: str) -> None:
    """Gives a directory to the user that a server runs as, when the harness is root."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid:
                found.append(int(entry))
    return found


def descendants(pid: int | None = None) -> list[int]:
    """All processes below `pid` (this process when None), zombies left out."""
    found, queue = [], [pid or os.getpid()]
    while queue:
        for child in children(queue.pop()):
            queue.append(child)
            try:
                with open(f"/proc/{child}/stat") as stat:
                    if stat.read().rpartition(")")[2].split()[0] != "Z":
                        found.append(child)
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def stuck_where(pid: int) -> str:
    """What every thread of a process is waiting in, for the message about one that hangs."""
    places = []
    for one in [pid, *descendants(pid)]:
        try:
            for task in sorted(os.listdir(f"/proc/{one}/task"), key=int)[:8]:
                with open(f"/proc/{one}/task/{task}/wchan") as wchan, open(f"/proc/{one}/task/{task}/comm") as comm:
                    places.append(f"{comm.read().strip()}/{task}: {wchan.read().strip() or '?'}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return "; ".join(places) or "it is gone"


def _name(argv) -> str:
    words = [Path(str(argv[0])).name, *map(str, argv[1:])]
    return " ".join(words)[:100]


def _status(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


def _tail(data: bytes, lines: int = 6) -> str:
    text = " | ".join(data.decode("ascii", errors="replace").strip().splitlines()[-lines:])
    text = "".join(letter if letter.isascii() and letter.isprintable() else "." for letter in text)
    return text[-600:] or "(no output)"
