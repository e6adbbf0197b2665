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
}
