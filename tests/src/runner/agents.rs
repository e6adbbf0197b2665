//! Agent processes, seen from the runner: a line goes in, an answer comes out, or it hung and is ended.

use super::library::case_program;
use super::variant::dress;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// After so long an answer will not come any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running agent.
pub struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    complaints: File,
    /// The processes that took its place (daemon) or that it started, as far as they were told.
    pub others: Vec<i32>,
}

/// An answer: what belongs into the transcript, and the facts behind the tab.
pub struct Answer {
    /// For the transcript.
    pub text: String,
    /// `key=value` words.
    pub facts: Vec<(String, String)>,
}

/// A file without a name, for the standard error of an agent.
pub fn nameless() -> File {
    // SAFETY: makes a descriptor that nobody else knows.
    unsafe { File::from_raw_fd(libc::memfd_create(c"stderr".as_ptr(), libc::MFD_CLOEXEC)) }
}

/// Whatever the test itself was started with is nothing to the program under test.
pub fn only_three_descriptors() -> std::io::Result<()> {
    // SAFETY: closes nothing before exec.
    match unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Agent {
    /// Starts one that plays these ends.
    pub fn start(ends: &[&str], preloaded: bool, at_once: bool) -> Result<Self, String> {
        let complaints = nameless();
        let copy = complaints
            .try_clone()
            .map_err(|problem| problem.to_string())?;
        let mut command = Command::new(case_program());
        dress(&mut command, preloaded, at_once);
        command.arg("agent").args(ends).process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(copy);
        // SAFETY: one system call between fork and exec.
        unsafe { command.pre_exec(only_three_descriptors) };
        let mut child = command
            .spawn()
            .map_err(|problem| format!("cannot start the agent: {problem}"))?;
        let output = child.stdout.take().ok_or("no standard output")?;
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        let mut agent = Self {
            child,
            input,
            answers,
            complaints,
            others: Vec::new(),
        };
        agent.answer()?;
        Ok(agent)
    }

    /// Sends a line and waits for the answer.
    pub fn ask(&mut self, line: &str) -> Result<Answer, String> {
        let input = self
            .input
            .as_mut()
            .ok_or("the agent has no input any more")?;
        writeln!(input, "{line}").map_err(|problem| format!("the agent is gone: {problem}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer, String> {
        let line = self
            .answers
            .recv_timeout(PATIENCE)
            .map_err(|why| match why {
                RecvTimeoutError::Timeout => format!("HUNG: no answer within {PATIENCE:?}"),
                RecvTimeoutError::Disconnected => format!("the agent ended: {}", self.status()),
            })?;
        if let Some(problem) = line.strip_prefix('?') {
            return Err(format!("the script is wrong: {problem}"));
        }
        let (text, facts) = line.split_once('\t').unwrap_or((&line, ""));
        let facts: Vec<(String, String)> = facts
            .split_whitespace()
            .filter_map(|fact| fact.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let started = facts
            .iter()
            .filter(|(key, _)| key == "child" || key == "pid");
        self.others
            .extend(started.filter_map(|(_, pid)| pid.parse::<i32>().ok()));
        Ok(Answer {
            text: text.to_owned(),
            facts,
        })
    }

    /// How the process ended; waits for that a moment.
    pub fn status(&mut self) -> String {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    return match (status.code(), status.signal()) {
                        (Some(code), _) => format!("exit {code}"),
                        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
                    };
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(problem) => return problem.to_string(),
            }
        }
        "HUNG: still runs".to_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Ends its input, waits until it has ended, and returns what it wrote to standard error.
    pub fn finish(mut self) -> Result<(), String> {
        drop(self.input.take());
        let ended = self.status();
        let mut said = String::new();
        self.complaints
            .rewind()
            .and_then(|()| self.complaints.read_to_string(&mut said))
            .map_err(|p| p.to_string())?;
        if ended.starts_with("HUNG") {
            return Err(format!(
                "{ended} after the end of its script; standard error: {said}"
            ));
        }
        let logs = std::env::var_os("RSOCK_LOG").is_some();
        if said.is_empty() || logs {
            Ok(())
        } else {
            Err(format!("wrote to standard error: {said}"))
        }
    }

    /// What it wrote to standard error so far.
    pub fn complaints(&mut self) -> String {
        let mut said = String::new();
        let read = self
            .complaints
            .rewind()
            .and_then(|()| self.complaints.read_to_string(&mut said));
        read.map_or_else(|problem| problem.to_string(), |_| said)
    }
}

impl Drop for Agent {
    /// Nothing outlives its script, whatever happened.
    fn drop(&mut self) {
        let group = self.child.id() as i32;
        // SAFETY: the process group that this agent made, whose leader we have not reaped if it still runs; and processes
        // that told us their ids and that end with their control pipe anyway.
        unsafe {
            libc::kill(-group, libc::SIGKILL);
        }
        let _ = self.child.wait();
    }
}
