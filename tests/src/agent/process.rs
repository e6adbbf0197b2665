//! Processes: fork, exec, posix_spawn, passing descriptors, signals, and the ways to end.
//!
//! A child is an agent of its own. Its parent hands it the lines that are meant for it through a Unix socket, whose
//! number is high, so that it takes no number that the program under test could see.

use super::call::{Call, sys};
use super::{Args, Done, End, Lines, Reply, Slot, lock, words, write_line};
use libc::{c_char, c_int, pid_t};
use std::ffi::CString;
use std::mem::zeroed;
use std::process::ExitCode;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Descriptors of our own live from here on.
const HIGH: c_int = 900;

/// A child and the way to it.
pub struct Child {
    pid: pid_t,
    control: c_int,
    /// A process that this agent must not wait for in the way home (it ended, or it detached).
    waited: bool,
}

/// How an agent ends after its answer.
#[derive(Clone, Copy)]
pub enum Ending {
    /// exit(code), which runs what atexit registered.
    Exit(c_int),
    /// _exit(code).
    Immediate(c_int),
    /// Return from main.
    Return(u8),
    /// By a signal from itself.
    Signal(c_int),
    /// pthread_exit of the main thread while others run.
    MainThread,
}

impl Ending {
    /// Ends; comes back only to return from main.
    pub fn happen(self) -> Option<ExitCode> {
        match self {
            Self::Exit(code) => std::process::exit(code),
            // SAFETY: ends the process; nothing of ours needs to run.
            Self::Immediate(code) => unsafe { libc::_exit(code) },
            Self::Return(code) => return Some(ExitCode::from(code)),
            Self::Signal(signal) => {
                sys!(kill(libc::getpid(), signal));
                std::thread::sleep(std::time::Duration::from_secs(10));
            }
            Self::MainThread => {
                sys!(syscall(libc::SYS_exit, 0));
            }
        }
        None
    }
}

/// What an agent says when it starts: its ends and the slots that it inherited and that are open.
pub fn alive(ends: &[Arc<End>]) -> String {
    let mut text = String::new();
    for end in ends {
        text.push_str(&end.name);
        for (name, slot) in lock(&end.slots).iter() {
            let state = if sys!(fcntl(slot.fd, libc::F_GETFD)).failed() {
                "closed"
            } else {
                "open"
            };
            text.push_str(&format!(" {name} {state}"));
        }
    }
    format!("= alive {text}\tpid={}", std::process::id())
}

/// Takes over a slot from the program that was here before exec.
pub fn inherit(end: &End, name: &str, text: &str) {
    let mut numbers = text.split(':').map(|each| each.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let fd = next() as c_int;
    let slot = Slot {
        fd,
        sent: Arc::new(AtomicU64::new(next())),
        received: Arc::new(AtomicU64::new(next())),
    };
    lock(&end.slots).insert(name.to_owned(), slot);
}

/// The arguments for an agent that takes over this end.
fn arguments(end: &End) -> Vec<CString> {
    let mut words = vec!["case".to_owned(), "agent".to_owned(), end.name.clone()];
    for (name, slot) in lock(&end.slots).iter() {
        let (sent, received) = (
            slot.sent.load(Ordering::Relaxed),
            slot.received.load(Ordering::Relaxed),
        );
        words.push(format!("{name}={}:{sent}:{received}", slot.fd));
    }
    words
        .into_iter()
        .filter_map(|word| CString::new(word).ok())
        .collect()
}

/// Pointers to the arguments, as execv wants them.
fn pointers(words: &[CString]) -> Vec<*const c_char> {
    words
        .iter()
        .map(|word| word.as_ptr())
        .chain([ptr::null()])
        .collect()
}

/// A pair of control sockets, both high.
fn control_pair() -> Result<[c_int; 2], String> {
    let mut low = [0; 2];
    let made = sys!(socketpair(
        libc::AF_UNIX,
        libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
        0,
        low.as_mut_ptr()
    ));
    if made.failed() {
        return Err(format!("socketpair {made}"));
    }
    Ok(low.map(|fd| {
        let high = sys!(fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH)).result as c_int;
        sys!(close(fd));
        high
    }))
}

/// Becomes the child: its lines come from `control` from now on, and what is not of its end is closed.
fn become_child(ends: &mut Vec<Arc<End>>, end: &Arc<End>, control: c_int) {
    sys!(dup2(control, 0));
    sys!(dup2(control, 1));
    sys!(close(control));
    for child in lock(&end.children).values() {
        sys!(close(child.control));
    }
    lock(&end.children).clear();
    for other in ends.iter().filter(|other| other.name != end.name) {
        for slot in lock(&other.slots).values() {
            sys!(close(slot.fd));
        }
    }
    ends.retain(|other| other.name == end.name);
}

/// `fork NAME`. Both answer; the child's answer goes the way of all its answers.
pub fn fork(ends: &mut Vec<Arc<End>>, end: &Arc<End>, name: &str) -> Result<Reply, String> {
    let [ours, theirs] = control_pair()?;
    let call = sys!(fork());
    match call.result {
        0 => {
            sys!(close(ours));
            become_child(ends, end, theirs);
            Ok(Reply::text("= 0"))
        }
        pid => {
            sys!(close(theirs));
            adopt(end, name, pid as pid_t, ours, call)
        }
    }
}

/// Remembers a child and waits for its first answer.
fn adopt(end: &End, name: &str, pid: pid_t, control: c_int, call: Call) -> Result<Reply, String> {
    if call.failed() {
        return Ok(call.into());
    }
    let first = Lines { rest: Vec::new() }
        .next(control)
        .ok_or("the child said nothing")?;
    lock(&end.children).insert(
        name.to_owned(),
        Child {
            pid,
            control,
            waited: false,
        },
    );
    let text = first.split('\t').next().unwrap_or_default();
    Ok(Reply::text(call.shown_as(&format!("child, which says: {text}"))).with("child", pid))
}

/// Hands a line to a child and its answer back.
pub fn relay(end: &End, child: &str, words: &[&str]) -> Result<Reply, String> {
    let control = lock(&end.children)
        .get(child)
        .ok_or_else(|| format!("no child {child}"))?
        .control;
    write_line(control, &format!("{} {}", end.name, words.join(" ")));
    let answer = Lines { rest: Vec::new() }
        .next(control)
        .ok_or("the child has gone")?;
    match answer.strip_prefix('?') {
        Some(problem) => Err(problem.to_owned()),
        None => {
            let (text, hidden) = answer.split_once('\t').unwrap_or((&answer, ""));
            Ok(Reply {
                text: text.to_owned(),
                hidden: hidden.to_owned(),
                end: None,
            })
        }
    }
}

/// The environment as it is; execve's variants pass it on.
fn environment() -> Vec<CString> {
    use std::os::unix::ffi::OsStringExt;
    std::env::vars_os()
        .filter_map(|(key, value)| {
            CString::new([key.into_vec(), value.into_vec()].join(&b'=')).ok()
        })
        .collect()
}

/// `exec VARIANT`: the same end goes on in a new program image. Comes back only if it failed.
fn exec(end: &End, args: &Args) -> Result<Reply, String> {
    let program = c"/proc/self/exe";
    let words = arguments(end);
    let argv = pointers(&words);
    let environment = environment();
    let envp = pointers(&environment);
    let call = match args.or(0, "execve") {
        "execve" => sys!(execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr())),
        "execv" => sys!(execv(program.as_ptr(), argv.as_ptr())),
        "execvp" => sys!(execvp(program.as_ptr(), argv.as_ptr())),
        "execvpe" => sys!(execvpe(program.as_ptr(), argv.as_ptr(), envp.as_ptr())),
        "fexecve" => {
            let fd = sys!(open(program.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)).result as c_int;
            sys!(fexecve(fd, argv.as_ptr(), envp.as_ptr()))
        }
        // The program decides about the environment of what it starts: this one runs without the library.
        "bare" => sys!(execve(
            program.as_ptr(),
            argv.as_ptr(),
            [ptr::null()].as_ptr()
        )),
        "missing" => sys!(execv(c"/nonexistent".as_ptr(), argv.as_ptr())),
        other => return Err(format!("unknown variant {other}")),
    };
    Ok(call.into())
}

/// `spawn NAME [SLOT=NUMBER]`: posix_spawn of an agent for this end; with SLOT the descriptor becomes NUMBER by a file
/// action, as inetd and CGI do.
fn spawn(end: &End, args: &Args) -> Result<Reply, String> {
    let name = args.get(0)?;
    let [ours, theirs] = control_pair()?;
    let mut words = arguments(end);
    // SAFETY: posix_spawn_file_actions_init initialises it.
    let mut actions: libc::posix_spawn_file_actions_t = unsafe { zeroed() };
    sys!(posix_spawn_file_actions_init(&raw mut actions));
    sys!(posix_spawn_file_actions_adddup2(
        &raw mut actions,
        theirs,
        0
    ));
    sys!(posix_spawn_file_actions_adddup2(
        &raw mut actions,
        theirs,
        1
    ));
    if let Some((slot, target)) = args.or(1, "").split_once('=') {
        sys!(posix_spawn_file_actions_adddup2(
            &raw mut actions,
            end.fd(slot)?,
            super::number(target)?
        ));
        words.truncate(3);
        words.push(
            CString::new(format!("{slot}={target}:0:0")).map_err(|problem| problem.to_string())?,
        );
    }
    let (argv, environment) = (pointers(&words), environment());
    let envp = pointers(&environment);
    let mut pid: pid_t = 0;
    let call = sys!(posix_spawn(
        &raw mut pid,
        c"/proc/self/exe".as_ptr(),
        &raw const actions,
        ptr::null(),
        argv.as_ptr().cast::<*mut c_char>(),
        envp.as_ptr().cast::<*mut c_char>(),
    ));
    sys!(posix_spawn_file_actions_destroy(&raw mut actions));
    sys!(close(theirs));
    adopt(end, name, pid, ours, call)
}

/// `wait NAME`: how the child ended.
fn wait(end: &End, args: &Args) -> Result<Reply, String> {
    let pid = lock(&end.children)
        .get(args.get(0)?)
        .ok_or("no such child")?
        .pid;
    let mut status = 0;
    let call = sys!(waitpid(pid, &raw mut status, 0));
    if let Some(child) = lock(&end.children).get_mut(args.get(0)?) {
        child.waited = true;
    }
    let how = if libc::WIFEXITED(status) {
        format!("exit {}", libc::WEXITSTATUS(status))
    } else {
        format!(
            "signal {}",
            words::name(words::SIGNAL, libc::WTERMSIG(status).into())
        )
    };
    Ok(Reply::text(call.shown_as(&how)))
}

/// How many signals came.
static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: c_int) {
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

/// `handle SIGNAL restart|interrupt|default|ignore`.
fn handle(args: &Args) -> Result<Reply, String> {
    // SAFETY: all zeroes is a valid sigaction (default, no flags).
    let mut action: libc::sigaction = unsafe { zeroed() };
    match args.get(1)? {
        "restart" => action.sa_flags = libc::SA_RESTART,
        "interrupt" | "default" => {}
        "ignore" => action.sa_sigaction = libc::SIG_IGN,
        other => return Err(format!("unknown way {other}")),
    }
    if matches!(args.get(1)?, "restart" | "interrupt") {
        action.sa_sigaction = count as extern "C" fn(c_int) as usize;
    }
    Ok(sys!(sigaction(
        words::int(words::SIGNAL, args.get(0)?)?,
        &raw const action,
        ptr::null_mut()
    ))
    .into())
}

/// `block SIGNAL`, `unblock SIGNAL` for this thread.
fn block(operation: &str, args: &Args) -> Result<Reply, String> {
    // SAFETY: sigemptyset initialises the set.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    sys!(sigemptyset(&raw mut set));
    sys!(sigaddset(
        &raw mut set,
        words::int(words::SIGNAL, args.get(0)?)?
    ));
    let how = if operation == "block" {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    Ok(sys!(pthread_sigmask(how, &raw const set, ptr::null_mut())).into())
}

/// `sendfd U S`: passes a descriptor over a Unix socket. `recvfd U NAME` fetches it.
fn pass(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let unix = end.fd(args.get(0)?)?;
    let mut byte = 7u8;
    let mut vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = [0u64; 8];
    // SAFETY: all zeroes is an empty msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: pure arithmetic; the buffer above is larger.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
    if operation == "sendfd" {
        let slot = end.slot(args.get(1)?)?;
        // SAFETY: the header has room for one control message with one descriptor.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(first)
                .cast::<c_int>()
                .write_unaligned(slot.fd);
        }
        return Ok(sys!(sendmsg(unix, &raw const header, 0)).into());
    }
    let call = sys!(recvmsg(unix, &raw mut header, libc::MSG_CMSG_CLOEXEC));
    // SAFETY: the kernel filled in the control buffer; the header says how far.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    if call.result != 1 || first.is_null() {
        return Ok(Reply::text(format!("{call} without a descriptor")));
    }
    // SAFETY: a control message from SCM_RIGHTS carries one descriptor.
    end.keep(args.get(1)?, unsafe {
        libc::CMSG_DATA(first).cast::<c_int>().read_unaligned()
    });
    Ok(call.into())
}

/// `descriptors`: how many this process has open, not counting those that the kernel made for looking.
fn descriptors() -> Reply {
    let count = (0..HIGH)
        .filter(|fd| !sys!(fcntl(*fd, libc::F_GETFD)).failed())
        .count();
    Reply::text(format!("= {count}"))
}

/// `daemon`: the process that answers is not the one that was asked.
fn daemon() -> Reply {
    let call = sys!(daemon(1, 1));
    Reply::from(call).with("pid", std::process::id())
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    let ending = |ending| Reply {
        end: Some(ending),
        ..Reply::text("")
    };
    Ok(Some(match operation {
        "exec" => exec(end, args)?,
        "spawn" => spawn(end, args)?,
        "wait" => wait(end, args)?,
        "handle" => handle(args)?,
        "block" | "unblock" => block(operation, args)?,
        "system" => {
            let command = CString::new(args.get(0)?).map_err(|problem| problem.to_string())?;
            sys!(system(command.as_ptr())).into()
        }
        // What a child does first: memory that it shares with its parent until it writes.
        "allocate" => {
            let megabytes: usize = args.number(0)?;
            let blocks: Vec<Vec<u8>> = (0..megabytes * 16)
                .map(|number| vec![number as u8; 1 << 16])
                .collect();
            let sum: u64 = blocks
                .iter()
                .map(|block| u64::from(block[7]) + u64::from(block[65535]))
                .sum();
            Reply::text(format!("= {sum}"))
        }
        "raise" => sys!(kill(
            libc::getpid(),
            words::int(words::SIGNAL, args.get(0)?)?
        ))
        .into(),
        "caught" => Reply::text(format!("= {}", CAUGHT.load(Ordering::Relaxed))),
        "sendfd" | "recvfd" => pass(end, operation, args)?,
        "descriptors" => descriptors(),
        "daemon" => daemon(),
        "killchild" => {
            let pid = lock(&end.children)
                .get(args.get(0)?)
                .ok_or("no such child")?
                .pid;
            sys!(kill(pid, words::int(words::SIGNAL, args.get(1)?)?)).into()
        }
        "exit" => ending(Ending::Exit(args.number_or(0, 0)?)),
        "_exit" => ending(Ending::Immediate(args.number_or(0, 0)?)),
        "return" => ending(Ending::Return(args.number_or(0, 0)?)),
        "die" => ending(Ending::Signal(words::int(
            words::SIGNAL,
            args.or(0, "KILL"),
        )?)),
        "mainthread" => ending(Ending::MainThread),
        _ => return Ok(None),
    }))
}
