//! The program under test: an agent that carries out socket calls (`case agent …`), or a script run by hand
//! (`case run FILE [VARIANT]`), which is how a failure is looked at again.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["agent", rest @ ..] => rsock_tests::agent::main(rest),
        ["run", file] => rsock_tests::runner::by_hand(file, "plain"),
        ["run", file, variant] => rsock_tests::runner::by_hand(file, variant),
        _ => {
            eprintln!("usage: case run FILE [VARIANT]\n       case agent END…");
            ExitCode::from(2)
        }
    }
}
