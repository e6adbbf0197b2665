//! Programs in C, for what Rust cannot say: fortified calls, cancellation, longjmp, stdio, vfork, other allocators.

use rsock_tests::runner::c::check;

#[test]
fn fortified_calls() {
    check(
        "fortify.c",
        "fortify",
        &["-O2", "-D_FORTIFY_SOURCE=2", "-Wno-stringop-overflow"],
    );
    check(
        "fortify.c",
        "fortify3",
        &["-O2", "-D_FORTIFY_SOURCE=3", "-Wno-stringop-overflow"],
    );
}

#[test]
fn cancelled_threads() {
    check("cancel.c", "cancel", &["-O1"]);
}

#[test]
fn jumps_out_of_signal_handlers() {
    check("jump.c", "jump", &["-O1", "-Wno-clobbered"]);
}

#[test]
fn stdio_on_sockets() {
    check("stdio.c", "stdio", &["-O1"]);
}

#[test]
fn raw_system_calls() {
    check("raw.c", "raw", &["-O1"]);
}

#[test]
fn children_made_by_vfork() {
    check("vfork.c", "vfork", &["-O1"]);
}

#[test]
fn numbers_that_the_program_takes() {
    check("taken.c", "taken", &["-O1"]);
}

#[test]
fn epoll_instances_by_the_thousand() {
    check("instances.c", "instances", &["-O1"]);
}

#[test]
fn an_allocator_that_calls_hooked_functions() {
    check("allocator.c", "allocator", &["-O1", "-fno-builtin"]);
}

#[test]
fn the_last_thread_ends_the_process() {
    check("last.c", "last", &["-O1"]);
}

#[test]
fn constructors_of_other_libraries() {
    let library = rsock_tests::runner::library::compiled(
        "early.c",
        "libearly.so",
        &["-shared", "-fPIC", "-DLIBRARY"],
    );
    let directory = library
        .parent()
        .expect("a file has a directory")
        .display()
        .to_string();
    let options = [
        format!("-L{directory}"),
        format!("-Wl,-rpath,{directory}"),
        "-Wl,--no-as-needed".to_owned(),
        "-learly".to_owned(),
    ];
    check("early.c", "early", &options.each_ref().map(String::as_str));
}
