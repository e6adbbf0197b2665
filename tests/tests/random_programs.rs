//! Random programs of socket calls, compared call by call with kernel TCP.
//!
//! `RSOCK_TEST_PROGRAMS` says how many (default 60), `RSOCK_TEST_SEED` where to begin (default 1). A failing program is
//! made small, printed and kept in a file for `case run`.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rsock_tests::runner::differences;
use rsock_tests::runner::random::{Step, script};
use std::cell::RefCell;

fn setting(name: &str, default: u32) -> u32 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<bool>(), any::<u8>(), any::<u16>(), any::<u8>());
    let step = step.prop_map(|(end, kind, size, choice)| Step {
        end,
        kind,
        size,
        choice,
    });
    prop::collection::vec(step, 1..120)
}

#[test]
fn random_programs_cannot_tell() {
    let seed = setting("RSOCK_TEST_SEED", 1);
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: setting("RSOCK_TEST_PROGRAMS", 60),
        max_shrink_iters: 300,
        max_shrink_time: 90_000,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    // Once it fails, only the variants that failed need to be looked at while the program gets smaller.
    let failing: RefCell<Vec<&'static str>> = RefCell::default();
    let outcome = runner.run(&steps(), |steps| {
        let found = differences(&script(&steps), &failing.borrow());
        if found.is_empty() {
            return Ok(());
        }
        *failing.borrow_mut() = found.iter().map(|each| each.variant).collect();
        let text: Vec<&str> = found.iter().map(|each| each.text.as_str()).collect();
        Err(TestCaseError::fail(text.join("\n")))
    });
    if let Err(TestError::Fail(reason, steps)) = outcome {
        let program = script(&steps);
        let path = std::env::temp_dir().join("rsock-random.case");
        let kept = std::fs::write(&path, &program);
        panic!(
            "seed {seed}: a random program can tell rsock from kernel TCP\n{reason}\nthe program ({}, {kept:?}):\n{program}",
            path.display()
        );
    } else if let Err(other) = outcome {
        panic!("seed {seed}: {other}");
    }
}
