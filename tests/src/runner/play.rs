//! Plays one script in one variant, and returns the transcript.
//!
//! Besides the lines for the agents (`a …`, `b …`) a script has lines for the runner: `connect [SLOT]`,
//! `warm [SLOT [END END]]`, `rewarm` (a stream that may have been pinned to TCP in the meantime),
//! `sleep MS`, `ended END`, `kill END SIGNAL`. `$NAME` is the port of the slot NAME, or a fact from an answer.

use super::agents::Agent;
use super::variant::Variant;
use crate::agent::words;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What was asked and what came back, in order.
pub type Transcript = Vec<(String, String)>;

/// A run that did not get to its end.
#[derive(Debug)]
pub struct Failure {
    /// As far as it got.
    pub transcript: Transcript,
    /// Why not further.
    pub problem: String,
}

/// How long a stream may take to get onto its lanes.
const WARM: Duration = Duration::from_secs(5);

struct Stage {
    variant: Variant,
    agents: Vec<(Vec<&'static str>, Agent)>,
    facts: BTreeMap<String, String>,
    ports: BTreeMap<String, String>,
    transcript: Transcript,
}

impl Stage {
    fn new(variant: Variant) -> Result<Self, String> {
        let casts: Vec<(Vec<&'static str>, bool)> = if variant.together {
            vec![(vec!["a", "b"], variant.client)]
        } else {
            vec![(vec!["a"], variant.client), (vec!["b"], variant.server)]
        };
        let mut agents = Vec::new();
        for (ends, preloaded) in casts {
            let agent = Agent::start(&ends, preloaded, variant.at_once)?;
            agents.push((ends, agent));
        }
        Ok(Self {
            variant,
            agents,
            facts: BTreeMap::new(),
            ports: BTreeMap::new(),
            transcript: Vec::new(),
        })
    }

    fn agent(&mut self, end: &str) -> Result<&mut Agent, String> {
        let found = self.agents.iter_mut().find(|(ends, _)| ends.contains(&end));
        found
            .map(|(_, agent)| agent)
            .ok_or_else(|| format!("no end {end}"))
    }

    /// Puts facts in the place of `$NAME`.
    fn filled_in(&self, line: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut pieces = line.split('$');
        text.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let end = piece
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(piece.len());
            let name = &piece[..end];
            text.push_str(
                self.facts
                    .get(name)
                    .ok_or_else(|| format!("nothing is known of ${name}"))?,
            );
            text.push_str(&piece[end..]);
        }
        Ok(text)
    }

    /// Ports get names in the order in which they appear.
    fn without_ports(&mut self, text: &str) -> String {
        let mut pieces = text.split(['<', '>']);
        let mut clean = pieces.next().unwrap_or_default().to_owned();
        while let (Some(port), Some(rest)) = (pieces.next(), pieces.next()) {
            let next = format!("port{}", self.ports.len());
            clean.push_str(self.ports.entry(port.to_owned()).or_insert(next));
            clean.push_str(rest);
        }
        clean
    }

    /// Asks an agent; not for the transcript.
    fn ask(&mut self, line: &str) -> Result<String, String> {
        let full = self.filled_in(line)?;
        let end = full.split([' ', '.']).next().unwrap_or_default().to_owned();
        let answer = self.agent(&end)?.ask(&full)?;
        for (key, value) in answer.facts {
            // A port is known by the slot that was bound.
            let slot = full.split_whitespace().nth(2).unwrap_or_default();
            let name = if key == "port" { slot.to_owned() } else { key };
            self.facts.insert(name, value);
        }
        Ok(answer.text)
    }

    fn say(&mut self, line: &str) -> Result<(), String> {
        self.transcript
            .push((line.to_owned(), "(no answer)".to_owned()));
        let text = self.ask(line)?;
        let text = self.without_ports(&text);
        if let Some(last) = self.transcript.last_mut() {
            last.1 = text;
        }
        Ok(())
    }

    /// A connection from `a` to `b` with the same slot name at both.
    fn connect(&mut self, slot: &str) -> Result<(), String> {
        if !self.facts.contains_key("l") {
            for line in ["b socket l", "b bind l 127.0.0.1:0", "b listen l 64"] {
                self.say(line)?;
            }
        }
        self.say(&format!("a socket {slot}"))?;
        self.say(&format!("a connect {slot} 127.0.0.1:$l"))?;
        self.say(&format!("b accept l {slot}"))
    }

    /// Messages both ways until both directions are on lanes, if this variant can have lanes; else just a few. `must`: a
    /// stream that stays on TCP is a failure.
    fn warm(&mut self, slot: &str, ends: [&str; 2], must: bool) -> Result<(), String> {
        if !self.variant.warm {
            return Ok(());
        }
        let start = Instant::now();
        let must = must && self.variant.on_lanes();
        let limit = if must {
            WARM
        } else {
            Duration::from_millis(300)
        };
        let mut rounds = 0;
        loop {
            for (sender, receiver) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                self.ask(&format!("{sender} warm {slot} send"))?;
                let wrong = self.ask(&format!("{receiver} warm {slot} recv"))?;
                if !wrong.is_empty() {
                    return Err(format!("warming up: {wrong}"));
                }
            }
            rounds += 1;
            let mut carriers = Vec::new();
            for end in ends {
                self.ask(&format!("{end} carrier {slot}"))?;
                carriers.push(self.facts.get("carrier").cloned().unwrap_or_default());
            }
            if carriers == ["3", "3"] && self.variant.may_hop() {
                return Ok(());
            }
            let can_hop = self.variant.may_hop() && !carriers.contains(&"-2".to_owned());
            if rounds >= 3 && !can_hop && !must {
                return Ok(());
            }
            let missing = carriers.contains(&"-2".to_owned());
            if start.elapsed() > limit || (missing && must) {
                let problem =
                    format!("not on lanes after {rounds} messages each way: carriers {carriers:?}");
                return if must { Err(problem) } else { Ok(()) };
            }
            std::thread::sleep(Duration::from_millis(if rounds < 5 { 1 } else { 10 }));
        }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => Ok(()),
            [comment, ..] if comment.starts_with(['#', '!']) => Ok(()),
            ["connect"] => self.connect("s"),
            ["connect", slot] => self.connect(slot),
            ["warm"] => self.warm("s", ["a", "b"], true),
            ["warm", slot] => self.warm(slot, ["a", "b"], true),
            ["warm", slot, one, other] => self.warm(slot, [one, other], true),
            ["rewarm"] => self.warm("s", ["a", "b"], false),
            ["sleep", time] => {
                let time = time
                    .parse()
                    .map_err(|_| format!("{time} is not a number"))?;
                std::thread::sleep(Duration::from_millis(time));
                Ok(())
            }
            ["ended", end] => {
                let status = self.agent(end)?.status();
                self.transcript.push((line.to_owned(), status));
                Ok(())
            }
            ["kill", end, signal] => {
                let signal = words::int(words::SIGNAL, signal)?;
                self.agent(end)?.signal(signal);
                Ok(())
            }
            _ => self.say(line),
        }
    }

    fn finish(mut self) -> Result<Transcript, Failure> {
        let transcript = std::mem::take(&mut self.transcript);
        for (ends, agent) in self.agents {
            if let Err(problem) = agent.finish() {
                return Err(Failure {
                    transcript,
                    problem: format!("{}: {problem}", ends.concat()),
                });
            }
        }
        Ok(transcript)
    }
}

/// Plays it.
pub fn play(script: &str, variant: Variant) -> Result<Transcript, Failure> {
    let fresh = |problem| Failure {
        transcript: Vec::new(),
        problem,
    };
    let mut stage = Stage::new(variant).map_err(fresh)?;
    for line in script.lines().map(str::trim) {
        if let Err(problem) = stage.line(line) {
            let mut problem = format!("{problem} (at: {line})");
            for (ends, agent) in &mut stage.agents {
                let said = agent.complaints();
                if !said.is_empty() {
                    problem.push_str(&format!(
                        "\n{} wrote to standard error: {said}",
                        ends.concat()
                    ));
                }
            }
            return Err(Failure {
                transcript: stage.transcript,
                problem,
            });
        }
    }
    stage.finish()
}
