//! Two virtual hosts with RoCE and iWARP for tests: `scripts/fabric` from Rust.
//!
//! A [`Fabric`] is booted once and used for many cases, since booting takes longer than most of them. It stops when it is dropped,
//! and by itself after half an hour should the test be killed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// The first.
    A,
    /// The second.
    B,
}

impl Host {
    fn name(self) -> &'static str {
        match self {
            Host::A => "a",
            Host::B => "b",
        }
    }
}

/// What a command on a host came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its exit code; 124: it was out of time; 125: its host is gone.
    pub code: i32,
    /// What it wrote to stdout.
    pub out: String,
    /// What it wrote to stderr.
    pub err: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}\n{}{}", self.code, self.out, self.err)
    }
}

/// A command that runs on a host in the background.
#[derive(Clone, Debug)]
pub struct Job {
    host: Host,
    number: String,
}

/// Two running hosts.
pub struct Fabric {
    directory: PathBuf,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/fabric")
}

fn ran(output: &Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Fabric {
    /// Boots two hosts with `transport` (roce, iwarp, both, none). None, and a line that says why, where the hosts' programs cannot be had.
    ///
    /// # Panics
    /// If everything is there and the hosts do not come up.
    pub fn boot(transport: &str) -> Option<Fabric> {
        let setup = Command::new(script())
            .args(["setup", transport])
            .stdin(Stdio::null())
            .output();
        let setup = ran(&setup.expect("scripts/fabric can be started"));
        if setup.code != 0 {
            eprintln!("skipped: no virtual hosts here: {}", setup.err.trim());
            return None;
        }
        let mut start = Command::new(script());
        start
            .args(["start", "--transport", transport, "--lifetime", "1800"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let started = ran(&start.output().expect("scripts/fabric can be started"));
        assert_eq!(started.code, 0, "the hosts did not come up");
        Some(Fabric {
            directory: PathBuf::from(started.out.trim()),
        })
    }

    fn call(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(script());
        command
            .args(arguments)
            .env("RSOCK_FABRIC", &self.directory)
            .stdin(Stdio::null());
        ran(&command.output().expect("scripts/fabric can be started"))
    }

    /// Runs a command line on a host.
    pub fn run(&self, host: Host, command: &str) -> Ran {
        self.call(&["exec", "-t", "60", host.name(), command])
    }

    /// Runs a command line on a host that has to succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn must(&self, host: Host, command: &str) -> String {
        let ran = self.run(host, command);
        assert_eq!(ran.code, 0, "{command}: {ran}");
        ran.out
    }

    /// Starts a command line on a host.
    ///
    /// # Panics
    /// If the host is gone.
    pub fn spawn(&self, host: Host, command: &str) -> Job {
        let ran = self.call(&["spawn", host.name(), command]);
        assert_eq!(ran.code, 0, "{command}: {ran}");
        Job {
            host,
            number: ran.out.trim().into(),
        }
    }

    /// Waits for a job to end.
    pub fn wait(&self, job: &Job, seconds: u32) -> Ran {
        self.call(&[
            "wait",
            "-t",
            &seconds.to_string(),
            job.host.name(),
            &job.number,
        ])
    }

    /// Waits until a job has written `text` to stdout.
    ///
    /// # Panics
    /// If it does not within `seconds`.
    pub fn await_output(&self, job: &Job, text: &str, seconds: u64) {
        let directory = self
            .directory
            .join("share/jobs")
            .join(job.host.name())
            .join(&job.number);
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            // Not there yet, or half of a character so far: looked at again.
            let out = std::fs::read(directory.join("stdout")).unwrap_or_default();
            if String::from_utf8_lossy(&out).contains(text) {
                return;
            }
            let err = std::fs::read(directory.join("stderr")).unwrap_or_default();
            let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
            assert!(
                Instant::now() < end,
                "no '{text}' within {seconds} s:\n{out}{err}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Cuts a host's power.
    pub fn kill(&self, host: Host) {
        let ran = self.call(&["kill", host.name()]);
        assert_eq!(ran.code, 0, "{ran}");
    }

    /// Boots a host that was killed.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn reboot(&self, host: Host) {
        let ran = self.call(&["boot", host.name()]);
        assert_eq!(ran.code, 0, "{ran}");
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.call(&["stop"]);
    }
}
