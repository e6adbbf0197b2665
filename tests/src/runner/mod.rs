//! Runs scripts in all variants and compares them with kernel TCP.

mod agents;
pub mod c;
pub mod library;
mod play;
pub mod random;
pub mod variant;

pub use play::{Failure, Transcript, play};
use std::process::ExitCode;
use variant::{ALL, Variant};

/// Which variants make sense for a script: its lines that begin with `!` say so.
///
/// `!apart`: two processes only. `!together`: one process only. `!warm`: not with a hop in the middle.
/// `!both`: not with one plain end. `!policy`: the oracle and the default policy only.
fn variants(script: &str) -> Vec<Variant> {
    let says = |mark: &str| script.lines().any(|line| line.trim() == mark);
    ALL.into_iter()
        .filter(|each| !(says("!apart") && each.together))
        .filter(|each| !says("!together") || each.together)
        .filter(|each| !says("!warm") || each.warm)
        .filter(|each| !says("!policy") || each.name == "plain" || !each.at_once)
        .filter(|each| !(says("!both") && each.client != each.server))
        .collect()
}

/// The lines of a transcript around the one that matters.
fn excerpt(transcript: &[(String, String)], at: usize) -> String {
    let from = at.saturating_sub(12);
    let lines = transcript[from.min(transcript.len())..at.min(transcript.len())].iter();
    lines
        .map(|(line, answer)| format!("      {line} {answer}\n"))
        .collect()
}

/// What is wrong with `seen`, if anything.
fn difference(expected: &Transcript, seen: &Result<Transcript, Failure>) -> Option<String> {
    let (transcript, problem) = match seen {
        Ok(transcript) => (transcript, None),
        Err(failure) => (&failure.transcript, Some(&failure.problem)),
    };
    let different = expected
        .iter()
        .zip(transcript)
        .position(|(expected, seen)| expected != seen);
    match (different, problem) {
        (Some(at), _) => Some(format!(
            "{}      {}\n  TCP   {}\n  here  {}\n{}",
            excerpt(transcript, at),
            expected[at].0,
            expected[at].1,
            transcript[at].1,
            problem.map_or(String::new(), |problem| format!("  later {problem}\n")),
        )),
        (None, Some(problem)) => Some(format!(
            "{}  {problem}\n",
            excerpt(transcript, transcript.len())
        )),
        (None, None) => None,
    }
}

/// A variant that can be told from TCP, and what gave it away.
pub struct Difference {
    /// The name of the variant.
    pub variant: &'static str,
    /// The lines around it.
    pub text: String,
}

/// Runs `script` in every variant that applies; the differences from kernel TCP, or nothing. `only`, if it is not empty,
/// names the variants to look at.
///
/// # Panics
/// If the script does not even work on kernel TCP: then the test is wrong.
pub fn differences(script: &str, only: &[&str]) -> Vec<Difference> {
    let mut variants = variants(script);
    let oracle = variants[0];
    variants.retain(|each| *each == oracle || only.is_empty() || only.contains(&each.name));
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = variants
            .iter()
            .map(|each| scope.spawn(|| play(script, *each)))
            .collect();
        runs.into_iter()
            .map(|run| {
                run.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let oracle = match results.remove(0) {
        Ok(transcript) => transcript,
        Err(failure) => {
            let so_far = excerpt(&failure.transcript, failure.transcript.len());
            panic!(
                "the script fails on kernel TCP:\n{so_far}  {}",
                failure.problem
            )
        }
    };
    if let Some(at) = oracle
        .iter()
        .position(|(_, answer)| answer.contains("gave up waiting"))
    {
        panic!(
            "the script waits for what never comes on kernel TCP:\n{}",
            excerpt(&oracle, at + 1)
        );
    }
    let others = variants[1..].iter().zip(results);
    others
        .filter_map(|(each, seen)| {
            difference(&oracle, &seen).map(|text| Difference {
                variant: each.name,
                text: format!("{}:\n{text}", each.name),
            })
        })
        .collect()
}

/// Checks a script; a difference fails the test and leaves the script in a file, to be run by hand.
///
/// # Panics
/// If a variant behaves differently from kernel TCP.
pub fn check(name: &str, script: &str) {
    let differences = differences(script, &[]);
    if differences.is_empty() {
        return;
    }
    let path = std::env::temp_dir().join(format!("rsock-{}.case", name.replace([':', ' '], "-")));
    let kept = std::fs::write(&path, script).map_or_else(
        |problem| format!("(cannot keep the script: {problem})"),
        |()| format!("run again: case run {} VARIANT", path.display()),
    );
    panic!(
        "{name} differs from kernel TCP\n{}\n{kept}",
        differences
            .iter()
            .map(|each| each.text.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    );
}

/// `case run FILE VARIANT`.
pub fn by_hand(file: &str, variant: &str) -> ExitCode {
    let Some(variant) = Variant::named(variant) else {
        eprintln!(
            "no variant {variant}; there are {}",
            ALL.map(|each| each.name).join(", ")
        );
        return ExitCode::from(2);
    };
    let script = match std::fs::read_to_string(file) {
        Ok(script) => script,
        Err(problem) => {
            eprintln!("{file}: {problem}");
            return ExitCode::from(2);
        }
    };
    let (transcript, problem) = match play(&script, variant) {
        Ok(transcript) => (transcript, None),
        Err(failure) => (failure.transcript, Some(failure.problem)),
    };
    for (line, answer) in transcript {
        println!("{line} {answer}");
    }
    match problem {
        None => ExitCode::SUCCESS,
        Some(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// One test for each script: `scripts! { name: "…", … }`.
#[macro_export]
macro_rules! scripts {
    ($($(#[$attribute:meta])* $name:ident: $script:expr;)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            $crate::runner::check(concat!(module_path!(), "::", stringify!($name)), $script);
        }
    )*};
}
