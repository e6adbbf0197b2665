//! Everyday programs, preloaded: they start, work and say nothing that they do not say otherwise.

use rsock_tests::runner::library::library;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program run to its end, with this LD_PRELOAD or none: what it wrote.
fn said(preload: Option<&OsString>, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new("timeout");
    command.arg("60").args(arguments);
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", preload);
    }
    let output = command
        .output()
        .unwrap_or_else(|problem| panic!("{command:?}: {problem}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn same_with(preload: &OsString, arguments: &[&str]) {
    let plain = said(None, arguments);
    assert_eq!(plain, said(Some(preload), arguments), "{arguments:?}");
}

const SHELL: &str = "
    set -e
    printf 'one\\ntwo\\n' | while read -r line; do echo \"$line\"; done
    cat <<< 'a here document'
    echo \"$(echo from a subshell; (exec echo and exec))\"
    { sleep 0.1; echo background; } & wait
    exec 7>/dev/null; exec 7>&-
";

const PYTHON: &str = "
import os, select, socket, subprocess, threading
door = socket.create_server(('127.0.0.1', 0))
def serve():
    stream, _ = door.accept()
    with stream:
        while data := stream.recv(65536):
            stream.sendall(data)
threading.Thread(target=serve).start()
with socket.create_connection(door.getsockname()) as stream:
    for size in 1, 1000, 100000:
        for _ in range(40):
            data = os.urandom(size)
            stream.sendall(data)
            back = b''
            while len(back) < size:
                select.select([stream], [], [])
                back += stream.recv(65536)
            assert back == data
    print(subprocess.run(['echo', 'from a child'], capture_output=True).stdout)
    if os.fork() == 0:
        os._exit(0)
    print(os.wait()[1])
    f = stream.makefile('rwb')
    f.write(b'a line\\n'); f.flush(); print(f.readline()); f.close()
";

const PERL: &str = "
use IO::Socket::INET;
my $door = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die;
my $child = fork;
if (!$child) {
    my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $door->sockport) or die;
    print $s \"line $_\\n\" for 1 .. 100;
    print while <$s>;
    exit 0;
}
my $s = $door->accept or die;
for (1 .. 100) { my $line = <$s>; print $s \"echo $line\"; }
close $s; waitpid $child, 0; exit $?;
";

fn everyday_programs(preload: &OsString) {
    same_with(preload, &["ls", "-l", "/usr"]);
    same_with(preload, &["bash", "-c", SHELL]);
    same_with(preload, &["python3", "-c", PYTHON]);
    same_with(preload, &["perl", "-e", PERL]);
}

/// An allocator that is preloaded too, before or after us: it calls our functions while it is set up.
fn with_allocator(name: &str, package: &str) {
    let path = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ]
    .map(|directory| PathBuf::from(directory).join(name))
    .into_iter()
    .find(|path| path.exists())
    .unwrap_or_else(|| panic!("{name} is not there: apt-get install {package}"));
    let joined = |first: &Path, second: &Path| {
        let mut both = OsString::from(first);
        both.push(":");
        both.push(second);
        both
    };
    everyday_programs(&joined(&path, library()));
    everyday_programs(&joined(library(), &path));
}

#[test]
fn everyday_programs_do_not_notice() {
    everyday_programs(&library().into());
}

#[test]
fn everyday_programs_with_jemalloc_do_not_notice() {
    with_allocator("libjemalloc.so.2", "libjemalloc2");
}

#[test]
fn everyday_programs_with_tcmalloc_do_not_notice() {
    with_allocator("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4");
}

/// Ends the server with the test.
struct Server(Child);
impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, which the test has noticed then.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Python's web server on a free port.
fn web_server(preloaded: bool, directory: &Path) -> (Server, u16) {
    let mut command = Command::new("python3");
    command
        .args([
            "-u",
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            "--directory",
        ])
        .arg(directory)
        .arg("0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if preloaded {
        command.env("LD_PRELOAD", library());
    }
    let mut child = command.spawn().expect("python3 starts");
    let output = child.stdout.take().expect("its standard output");
    let server = Server(child);
    let mut line = String::new();
    BufReader::new(output)
        .read_line(&mut line)
        .expect("its first line");
    let port = line
        .split_whitespace()
        .skip_while(|word| *word != "port")
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no port in {line:?}"));
    (server, port)
}

#[test]
fn curl_and_a_web_server_agree_whichever_end_is_preloaded() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("web");
    std::fs::create_dir_all(&directory).expect("a directory");
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|i| (i.wrapping_mul(i) >> 7) as u8)
        .collect();
    std::fs::write(directory.join("file"), &content).expect("a file");
    for (server_preloaded, client_preloaded) in [(true, true), (true, false), (false, true)] {
        let (server, port) = web_server(server_preloaded, &directory);
        let url = format!("http://127.0.0.1:{port}/file");
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "--max-time", "60", &url, &url]);
        if client_preloaded {
            command.env("LD_PRELOAD", library());
        }
        let output = command.output().expect("curl starts");
        assert!(output.status.success(), "{command:?}: {output:?}");
        assert_eq!(output.stdout.len(), 2 * content.len());
        assert!(
            output
                .stdout
                .chunks(content.len())
                .all(|copy| copy == content)
        );
        drop(server);
    }
}
