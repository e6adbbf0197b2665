//! Two ends of the stream engine against a simulated TCP connection and a simulated link, with faults at every step.
//!
//! A run is drawn from a seed: a memory or a verbs link, sizes of buffers and rings, how eager everybody is, and then in each
//! step something that a program, a driver, the network or a person with `kill -9` might do. Checked throughout: the bytes that
//! arrive are those that were sent, in order and once; a clean end comes only where the sender ended and everything arrived; an
//! error only where TCP would give one too, and never on a memory link for a death of the sender; and when nothing new happens,
//! everything that was accepted arrives and whoever waits for an end gets it.
//!
//! `RSOCK_SIM_SEED=n` repeats one run with its steps printed; `RSOCK_SIM_COUNT=n` sets the number of runs,
//! `RSOCK_SIM_FIRST=n` the first seed.

mod end;
mod faults;
mod net;
mod receiving;
mod rng;
mod sending;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use faults::Fault;
use world::{Seen, World};

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is not a number")),
    )
}

/// Runs one seed; a panic of the engine is a failure too.
fn run(seed: u64, fault: Fault) -> Result<Seen, String> {
    let mut world = World::new(seed, fault, false);
    match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(Ok(())) => Ok(world.seen),
        Ok(Err(why)) => Err(why),
        Err(_) => Err("the engine panics".into()),
    }
}

/// Runs a seed again and prints what happened.
fn tell(seed: u64, fault: Fault) {
    let mut world = World::new(seed, fault, true);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    println!("seed {seed}: memory link: {}", world.net.memory);
    for line in world.net.trace.iter().flatten() {
        println!("  {line}");
    }
    println!("seed {seed}: {outcome:?}");
}

#[test]
fn nothing_is_lost_doubled_or_left_waiting_whatever_fails() {
    if let Some(seed) = variable("RSOCK_SIM_SEED") {
        tell(seed, Fault::None);
        run(seed, Fault::None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        return;
    }
    let first = variable("RSOCK_SIM_FIRST").unwrap_or(1);
    let count = variable("RSOCK_SIM_COUNT").unwrap_or(100_000);
    let mut all = Seen::default();
    for seed in first..first + count {
        match run(seed, Fault::None) {
            Ok(seen) => all.add(&seen),
            Err(why) => {
                tell(seed, Fault::None);
                panic!("seed {seed}: {why}\nrepeat it with RSOCK_SIM_SEED={seed}");
            }
        }
    }
    println!("{all:?}");
    if count >= 10_000 {
        // The runs have to go everywhere, or they show nothing.
        let Seen {
            lane_bytes,
            hops,
            returns,
            skips,
            kills,
            losses,
            resets,
            clean_ends,
            strips,
            ..
        } = all;
        let least = [
            lane_bytes, hops, returns, skips, kills, losses, resets, clean_ends, strips,
        ];
        assert!(
            least.iter().all(|n| *n > count / 100),
            "too little happens: {all:?}"
        );
    }
}

/// How many runs a broken driver may get through unnoticed.
const PATIENCE: u64 = 50_000;

thread_local! {
    /// Panics of the engine are expected here and not worth a message.
    static EXPECTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The simulator has to notice what is wrong with this driver, by one of these symptoms.
fn caught(fault: Fault, symptoms: &[&str]) {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                usual(info);
            }
        }));
    });
    let mut others = std::collections::BTreeMap::new();
    EXPECTED.set(true);
    let found = (1..PATIENCE).find_map(|seed| {
        let why = run(seed, fault).err()?;
        if symptoms.iter().any(|symptom| why.contains(symptom)) {
            return Some((seed, why));
        }
        others
            .entry(why.chars().take(60).collect::<String>())
            .or_insert(seed);
        None
    });
    EXPECTED.set(false);
    let (seed, why) =
        found.unwrap_or_else(|| panic!("{fault:?} goes unnoticed, but for {others:?}"));
    println!("{fault:?} is noticed in run {seed}: {why}");
}

const SHORT: &str = "a clean end at";
const WRONG: &str = "delivers";
const STALL: &str = "waits for ever";
const ERROR: &str = "a reset that TCP would not have had";

#[test]
fn bytes_taken_before_the_token_is_out_are_noticed() {
    caught(Fault::AcceptBeforeToken, &[SHORT]);
}

#[test]
fn bytes_taken_while_resuming_are_noticed() {
    caught(Fault::AcceptWhileResuming, &[SHORT]);
}

#[test]
fn a_late_consumed_that_trims_the_ring_is_noticed() {
    caught(Fault::LateConsumedTrims, &[WRONG]);
}

#[test]
fn an_end_before_the_resumed_position_taken_for_clean_is_noticed() {
    caught(Fault::NoFloor, &[SHORT]);
}

#[test]
fn an_acknowledgement_after_close_is_noticed() {
    caught(Fault::AckAfterClose, &[STALL]);
}

#[test]
fn a_dead_peers_ring_that_nobody_looks_at_is_noticed() {
    caught(Fault::ForgetsRing, &[ERROR]);
}

#[test]
fn a_dead_peers_cursor_that_is_stale_is_noticed() {
    caught(Fault::StalePublished, &[SHORT]);
}

#[test]
fn a_resume_that_closes_one_half_only_is_noticed() {
    caught(Fault::NoPropagation, &["the halves disagree"]);
}

#[test]
fn control_bytes_that_wait_for_the_program_are_noticed() {
    caught(Fault::NoBackgroundFlush, &[STALL]);
}

#[test]
fn a_guard_that_has_nothing_to_do_with_the_data_is_noticed() {
    caught(Fault::AnyGuard, &[STALL]);
}

#[test]
fn other_data_after_an_unsettled_hop_is_noticed() {
    caught(
        Fault::OtherByteAfterAbandon,
        &["a token of an honest peer is wrong"],
    );
}

#[test]
fn a_consumed_cursor_ahead_of_delivery_is_noticed() {
    caught(Fault::EarlyConsumed, &[WRONG]);
}

#[test]
fn bytes_that_are_not_skipped_are_noticed() {
    caught(Fault::NoSkip, &[WRONG]);
}

#[test]
fn a_loss_that_nobody_notices_is_noticed() {
    caught(Fault::NeverNoticesLoss, &[STALL]);
}

#[test]
fn a_token_in_the_programs_buffer_is_noticed() {
    caught(Fault::NoStrip, &[WRONG]);
}

#[test]
fn a_socket_closed_before_the_last_control_came_is_noticed() {
    caught(Fault::ClosesEarly, &["for the sake of control bytes"]);
}
