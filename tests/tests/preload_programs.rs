//! The programs in tests/c/preload, each about one thing that a preloaded library can break: run plain and preloaded, they
//! end well and print the same. Their streams stay on TCP, or hop in the middle, or at their first message.

use rsock_tests::runner::library::{compiled, library};
use std::path::Path;
use std::process::{Command, Output};

/// How many messages let a stream hop: never, in the middle of the program, at once.
const HOPS: [&str; 3] = ["1000000000", "16", "0"];

fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|problem| panic!("{command:?}: {problem}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

/// `timeout`, so that a program that hangs fails.
fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program);
    command
}

fn same_when_preloaded(program: &Path) {
    let plain = run(&mut bounded(program));
    for hop in HOPS {
        let mut command = bounded(program);
        command
            .env("LD_PRELOAD", library())
            .env("RSOCK_HOP_MESSAGES", hop);
        let preloaded = run(&mut command);
        let text = |output: &Output| {
            [&output.stdout, &output.stderr]
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        assert_eq!(text(&plain), text(&preloaded), "{command:?}");
    }
}

/// Compiles tests/c/preload/NAME.c and runs it.
fn program(name: &str, options: &[&str]) {
    let source = format!("preload/{name}.c");
    same_when_preloaded(&compiled(&source, &format!("preload-{name}"), options));
}

#[test]
fn errno_is_the_kernels_and_untouched_by_success() {
    program("errno", &[]);
}

#[test]
fn a_blocked_thread_can_be_cancelled_and_cleans_up() {
    program("cancel", &["-fexceptions"]);
}

#[test]
fn a_fortified_program_is_the_same() {
    let fortified = [
        "-O2",
        "-fexceptions",
        "-D_FORTIFY_SOURCE=2",
        "-Wno-unused-result",
    ];
    for name in ["cancel", "fortify", "messages"] {
        let source = format!("preload/{name}.c");
        let program = compiled(&source, &format!("preload-{name}-fortified"), &fortified);
        same_when_preloaded(&program);
    }
}

#[test]
fn the_process_ends_with_its_last_thread() {
    program("last_thread", &[]);
}

#[test]
fn a_child_of_vfork_leaves_the_parents_streams_alone() {
    program("vfork", &[]);
}

#[test]
fn a_program_may_close_every_descriptor() {
    program("sweep", &[]);
}

#[test]
fn every_exec_passes_its_arguments_and_environment_on() {
    program("exec", &[]);
}

#[test]
fn stdio_works_on_a_stream() {
    program("stdio", &[]);
}

#[test]
fn asynchronous_io_works_on_a_stream() {
    program("aio", &[]);
}

#[test]
fn a_stream_may_go_to_another_process() {
    program("passing", &[]);
}

#[test]
fn signal_handlers_come_between_calls_not_in_the_middle() {
    program("signals", &[]);
}

#[test]
fn calls_by_number_find_the_stream() {
    program("number", &[]);
}

#[test]
fn batches_vectors_and_addresses_are_as_on_tcp() {
    program("messages", &[]);
}

#[test]
fn other_libraries_constructors_and_destructors_may_use_sockets() {
    let options = ["-fexceptions", "-DLIBRARY", "-shared", "-fPIC"];
    let early = compiled("preload/early.c", "libpreload-early.so", &options);
    let early = early.to_str().expect("a path in UTF-8");
    program("early", &["-Wl,--no-as-needed", early]);
}

#[test]
fn a_static_program_runs_as_without_us() {
    let source = "preload/errno.c";
    same_when_preloaded(&compiled(source, "preload-static", &["-static"]));
}
