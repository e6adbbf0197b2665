//! The ways in which a script is run. The first one is the oracle: kernel TCP, no library anywhere.

use super::library::library;
use std::process::Command;

/// One way to run a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// How failures call it.
    pub name: &'static str,
    /// Both ends in one process (and thread).
    pub together: bool,
    /// Is end `a`, the client, preloaded?
    pub client: bool,
    /// Is end `b`, the server, preloaded?
    pub server: bool,
    /// Does `warm` warm up? Without it the hop happens somewhere in the middle of the script.
    pub warm: bool,
    /// Do streams hop at their first message (RSOCK_HOP_MESSAGES=0), or when the default policy says so?
    pub at_once: bool,
}

/// One that hops at once.
const fn variant(
    name: &'static str,
    together: bool,
    client: bool,
    server: bool,
    warm: bool,
) -> Variant {
    Variant {
        name,
        together,
        client,
        server,
        warm,
        at_once: true,
    }
}

/// All of them.
pub const ALL: [Variant; 9] = [
    variant("plain", false, false, false, true),
    variant("plain-together", true, false, false, true),
    variant("lanes", false, true, true, true),
    variant("lanes-together", true, true, true, true),
    variant("hopping", false, true, true, false),
    variant("hopping-together", true, true, true, false),
    variant("client", false, true, false, true),
    variant("server", false, false, true, true),
    Variant {
        at_once: false,
        ..variant("default", false, true, true, false)
    },
];

impl Variant {
    /// The variant of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|each| each.name == name)
    }

    /// Must the streams be on lanes after warming up?
    pub fn on_lanes(self) -> bool {
        self.client && self.server && self.warm && !lanes_unchecked()
    }

    /// Could they get there?
    pub fn may_hop(self) -> bool {
        self.client && self.server
    }
}

/// `RSOCK_TEST_NO_LANE_CHECK=1`: the library cannot hop yet; compare only what the programs see.
pub fn lanes_unchecked() -> bool {
    std::env::var_os("RSOCK_TEST_NO_LANE_CHECK").is_some_and(|value| value == "1")
}

/// The environment of a program under test: nothing of rsock but what the variant says, and the log if asked for.
pub fn dress(command: &mut Command, preloaded: bool, at_once: bool) {
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name == "LD_PRELOAD" || (name.starts_with("RSOCK_") && !name.starts_with("RSOCK_LOG")) {
            command.env_remove(&key);
        }
    }
    if preloaded {
        command.env("LD_PRELOAD", library());
    }
    if preloaded && at_once {
        command.env("RSOCK_HOP_MESSAGES", "0");
    }
}
