//! `rsock run`: what the program finds, and what the caller is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `rsock run` with a library that does nothing: the C library itself, which is in every process anyway.
fn rsock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsock"));
    command
        .arg("run")
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .env("RSOCK_LIBRARY", c_library());
    command
}

fn c_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("readable");
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("/libc.so") || path.contains("/libc-"))
        .expect("the C library is mapped");
    Path::new(path).canonicalize().expect("it exists")
}

fn output(command: &mut Command) -> (String, String, Option<i32>) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("rsock starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(stdout), text(stderr), status.code())
}

/// A directory that is removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("rsock-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Directory(path)
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("allowed");
        path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_program_takes_the_place_of_rsock() {
    let child = rsock(&["sh", "-c", "echo $$"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("rsock starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("ended");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        pid.to_string()
    );
}

#[test]
fn the_program_finds_the_library_and_the_options() {
    let library = c_library();
    let script = "echo $LD_PRELOAD $RSOCK_LOG $RSOCK_HOP_MESSAGES $RSOCK_RING_SIZE ${RSOCK_SPIN_US-unset}; exit 7";
    let options = ["--log", "debug", "--hop-messages=0", "--ring-size", "65536"];
    let mut command = rsock(&[&options[..], &["--", "sh", "-c", script]].concat());
    let (stdout, stderr, code) = output(&mut command);
    assert_eq!(
        stdout,
        format!("{} debug 0 65536 unset\n", library.display())
    );
    assert_eq!((stderr.as_str(), code), ("", Some(7)));
}

#[test]
fn options_after_the_program_are_its_own() {
    let (stdout, _, _) = output(&mut rsock(&["echo", "--log", "x", "--help"]));
    assert_eq!(stdout, "--log x --help\n");
}

#[test]
fn exit_codes_are_those_of_env() {
    let directory = Directory::new("codes");
    let plain = directory.file("plain", b"no program", 0o644);
    for (arguments, expected) in [
        (["/no/such/program"].as_slice(), 127),
        (&["no-such-program-anywhere"], 127),
        (&[&plain], 126),
        (&["/"], 126),
        (&["--library", "/no/such/library.so", "true"], 125),
        (&["true"], 0),
    ] {
        let (_, stderr, code) = output(&mut rsock(arguments));
        assert_eq!(code, Some(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.is_empty(), expected == 0, "{stderr}");
    }
    let (_, stderr, code) = output(&mut rsock(&["--ring-size", "1000", "true"]));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("not a power of two"), "{stderr}");
}

#[test]
fn signals_reach_the_program_and_its_death_the_caller() {
    use std::os::unix::process::ExitStatusExt;
    let status = rsock(&["sh", "-c", "kill -TERM $$"])
        .status()
        .expect("rsock starts");
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn the_program_inherits_sigpipe_as_it_was() {
    let ignored = |shell: &str| {
        let script = format!("{shell} exec \"$0\" run grep SigIgn /proc/self/status");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_rsock")])
            .env("RSOCK_LIBRARY", c_library());
        let (stdout, _, _) = output(&mut command);
        let mask = stdout.trim().rsplit('\t').next().map(str::to_owned);
        let mask = u64::from_str_radix(&mask.expect("a line"), 16).expect("hexadecimal");
        mask & (1 << (libc::SIGPIPE - 1)) != 0
    };
    assert!(!ignored(""));
    assert!(ignored("trap '' PIPE;"));
}

#[test]
fn what_cannot_work_is_said_before_it_runs() {
    let directory = Directory::new("warnings");
    let script = directory.file("script", b"#!/no/such/interpreter\n", 0o755);
    let (_, stderr, code) = output(&mut rsock(&[&script]));
    assert_eq!(code, Some(127));
    assert!(
        stderr.contains("its interpreter /no/such/interpreter is not there"),
        "{stderr}"
    );

    // An ELF file without an interpreter; it ends in ENOEXEC or a crash, but the warning comes first.
    let library = fs::read(c_library()).expect("readable");
    let mut header = library[..64].to_vec();
    header[56..58].copy_from_slice(&[0, 0]); // no program headers
    header[40..48].fill(0); // no sections
    header[60..64].fill(0);
    let program = directory.file("static", &header, 0o755);
    let (_, stderr, _) = output(&mut rsock(&[&program]));
    assert!(stderr.contains("is statically linked"), "{stderr}");
    let (_, stderr, _) = output(&mut rsock(&["--quiet", &program]));
    assert!(!stderr.contains("statically"), "{stderr}");

    let nested = directory.file("nested", format!("#!{program}\n").as_bytes(), 0o755);
    let (_, stderr, _) = output(&mut rsock(&[&nested]));
    let expected = format!("its interpreter {program} is statically linked");
    assert!(stderr.contains(&expected), "{stderr}");
}
