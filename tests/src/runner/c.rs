//! Programs in C: compiled, run plain and preloaded, and what they print compared.

use super::library::compiled;
use super::variant::{dress, lanes_unchecked};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// After so long a program hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a program and returns all that can be seen of it.
fn seen(program: &Path, preloaded: bool) -> String {
    let mut output = super::agents::nameless();
    let copy = || -> File {
        output
            .try_clone()
            .unwrap_or_else(|problem| panic!("cannot copy a descriptor: {problem}"))
    };
    let mut command = Command::new(program);
    dress(&mut command, preloaded, true);
    command.env(
        "LANES",
        if preloaded && !lanes_unchecked() {
            "1"
        } else {
            "0"
        },
    );
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(copy())
        .stderr(copy());
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(super::agents::only_three_descriptors) };
    let mut child = command
        .spawn()
        .unwrap_or_else(|problem| panic!("{}: {problem}", program.display()));
    let start = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                break format!("exit {:?} signal {:?}", status.code(), status.signal());
            }
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            other => break format!("HUNG ({other:?})"),
        }
    };
    // SAFETY: the process group that this program made; whatever is left of it ends here.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    let waited = child.wait();
    let mut text = String::new();
    let read = output
        .rewind()
        .and_then(|()| output.read_to_string(&mut text));
    assert!(waited.is_ok() && read.is_ok(), "{waited:?} {read:?}");
    text + &ended
}

/// Compiles tests/c/SOURCE and compares what it prints plain and preloaded.
///
/// # Panics
/// If they differ, or if it does not even work plain.
pub fn check(source: &str, name: &str, options: &[&str]) {
    let program = compiled(source, name, options);
    let plain = seen(&program, false);
    assert!(
        plain.ends_with("exit Some(0) signal None") && !plain.contains("FAILED"),
        "plain:\n{plain}"
    );
    let preloaded = seen(&program, true);
    if plain != preloaded {
        let same = plain
            .lines()
            .zip(preloaded.lines())
            .take_while(|(plain, here)| plain == here)
            .count();
        let show = |text: &str| {
            text.lines()
                .skip(same.saturating_sub(5))
                .take(12)
                .collect::<Vec<_>>()
                .join("\n    ")
        };
        panic!(
            "{name} can tell\n  on TCP:\n    {}\n  preloaded:\n    {}",
            show(&plain),
            show(&preloaded)
        );
    }
}
