//! Operations in threads of their own, operations with a clock, and signals to a thread.

use super::call::sys;
use super::{Args, Done, End, Reply, lock, perform as carry_out, words};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread that carries out one operation.
pub struct Worker {
    handle: JoinHandle<Result<Reply, String>>,
    tid: i32,
}

/// Starts `words` in a thread called `name`.
pub fn start(end: &Arc<End>, name: &str, words: &[&str]) -> Result<Reply, String> {
    let (tell, told) = mpsc::channel();
    let owned: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let its_end = Arc::clone(end);
    let handle = std::thread::spawn(move || {
        let tid = sys!(gettid()).result as i32;
        tell.send(tid).map_err(|gone| gone.to_string())?;
        carry_out(
            &its_end,
            &owned.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    });
    let tid = told.recv().map_err(|gone| gone.to_string())?;
    lock(&end.threads).insert(name.to_owned(), Worker { handle, tid });
    Ok(Reply::text("started"))
}

/// `timed MS OPERATION…`: carries it out and says whether it took at least so long. Never says how long.
pub fn timed(end: &Arc<End>, args: &Args) -> Result<Reply, String> {
    let least = Duration::from_millis(args.number(0)?);
    let before = Instant::now();
    let mut reply = carry_out(end, &args.0[1..])?;
    let took = before.elapsed();
    // The kernel counts time-outs in ticks of a few milliseconds of another clock.
    if took + Duration::from_millis(5) >= least {
        reply.text.push_str(" not early");
    } else {
        reply.text.push_str(&format!(" EARLY after {took:?}"));
    }
    Ok(reply)
}

/// Does this thread sleep in the kernel, several times in a row? Bounded; the answer is for the transcript.
fn blocked(tid: i32, handle: &JoinHandle<Result<Reply, String>>) -> &'static str {
    let mut in_a_row = 0;
    for _ in 0..3000 {
        if handle.is_finished() {
            return "finished";
        }
        let stat =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        in_a_row = if state == Some('S') { in_a_row + 1 } else { 0 };
        if in_a_row == 5 {
            return "blocked";
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    "busy"
}

/// `join NAME`, `blocked NAME`, `running NAME`, `signal NAME SIGNAL`.
fn on_thread(end: &Arc<End>, operation: &str, args: &Args) -> Result<Reply, String> {
    let name = args.get(0)?;
    let mut threads = lock(&end.threads);
    if operation == "join" {
        let worker = threads
            .remove(name)
            .ok_or_else(|| format!("no thread {name}"))?;
        drop(threads);
        return worker
            .handle
            .join()
            .map_err(|_| format!("thread {name} panicked"))?;
    }
    let worker = threads
        .get(name)
        .ok_or_else(|| format!("no thread {name}"))?;
    Ok(match operation {
        "blocked" => Reply::text(blocked(worker.tid, &worker.handle)),
        "running" => Reply::text(if worker.handle.is_finished() {
            "finished"
        } else {
            "running"
        }),
        _ => {
            let signal = words::int(words::SIGNAL, args.get(1)?)?;
            sys!(syscall(
                libc::SYS_tgkill,
                libc::getpid(),
                worker.tid,
                signal
            ))
            .into()
        }
    })
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    match operation {
        "join" | "blocked" | "running" | "signal" => on_thread(end, operation, args).map(Some),
        "sleep" => {
            std::thread::sleep(Duration::from_millis(args.number(0)?));
            Ok(Some(Reply::text("")))
        }
        _ => Ok(None),
    }
}
