//! poll, select, epoll and their kin.

use super::call::{Call, sys};
use super::open::made;
use super::{Args, Done, End, Reply, lock, number, words};
use libc::{c_int, epoll_event, fd_set, pollfd, sigset_t, timespec};
use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::Arc;

/// A time-out in milliseconds as a timespec; negative is for ever.
fn limit(text: &str) -> Result<Option<timespec>, String> {
    let milliseconds: i64 = number(text)?;
    Ok((milliseconds >= 0).then(|| timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: (milliseconds % 1000) * 1_000_000,
    }))
}

/// An optional value as C wants it.
fn pointer<T>(value: Option<&T>) -> *const T {
    value.map_or(ptr::null(), ptr::from_ref)
}

/// A signal mask for the p-variants: `USR1` blocks it, `none` blocks nothing, `-` leaves the mask alone.
fn mask(text: &str) -> Result<Option<sigset_t>, String> {
    if text == "-" {
        return Ok(None);
    }
    // SAFETY: sigemptyset initialises the set.
    let mut set: sigset_t = unsafe { zeroed() };
    sys!(sigemptyset(&raw mut set));
    if text != "none" {
        sys!(sigaddset(&raw mut set, words::int(words::SIGNAL, text)?));
    }
    Ok(Some(set))
}

/// `s:IN|OUT,l:IN,-:IN` as an array for poll; the names come back in the same order.
fn poll_set<'a>(end: &End, text: &'a str) -> Result<(Vec<pollfd>, Vec<&'a str>), String> {
    let mut set = Vec::new();
    let mut names = Vec::new();
    for each in text.split(',') {
        let (name, events) = each.split_once(':').unwrap_or((each, "-"));
        let fd = if name == "-" { -1 } else { end.fd(name)? };
        set.push(pollfd {
            fd,
            events: words::int(words::POLL, events)? as i16,
            revents: 0x5555,
        });
        names.push(name);
    }
    Ok((set, names))
}

fn poll(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let (mut set, names) = if args.get(0)? == "nothing" {
        Default::default()
    } else {
        poll_set(end, args.get(0)?)?
    };
    let at = if set.is_empty() {
        ptr::null_mut()
    } else {
        set.as_mut_ptr()
    };
    let call = if operation == "poll" {
        sys!(poll(at, set.len() as u64, args.number(1)?))
    } else {
        let (time, mask) = (limit(args.get(1)?)?, mask(args.or(2, "-"))?);
        sys!(ppoll(
            at,
            set.len() as u64,
            pointer(time.as_ref()),
            pointer(mask.as_ref())
        ))
    };
    let mut text = call.to_string();
    if !call.failed() {
        for (each, name) in set.iter().zip(names) {
            text.push_str(&format!(
                " {name}:{}",
                words::bits(words::POLL, i64::from(each.revents))
            ));
        }
    }
    Ok(Reply::text(text))
}

/// `pollmany S COUNT TIMEOUT`: COUNT entries, only the last is S, all others are ignored ones.
fn poll_many(end: &End, args: &Args) -> Result<Reply, String> {
    let count: usize = args.number(1)?;
    let mut set = vec![
        pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0x5555
        };
        count + 1
    ];
    set[count - 1].fd = end.fd(args.get(0)?)?;
    let call = sys!(poll(set.as_mut_ptr(), count as u64, args.number(2)?));
    let others = set[..count - 1]
        .iter()
        .filter(|each| each.revents != 0)
        .count();
    let beyond = if set[count].revents == 0x5555 {
        ""
    } else {
        " WROTE BEYOND THE ARRAY"
    };
    let shown = words::bits(words::POLL, i64::from(set[count - 1].revents));
    Ok(Reply::text(format!(
        "{call} last:{shown} others {others}{beyond}"
    )))
}

/// `select r=s,l w=s e=s TIMEOUT [MASK]`; a set that is not named is null.
fn select(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let kinds = ["r", "w", "e"];
    let mut sets: [Option<fd_set>; 3] = [None; 3];
    let mut names: [Vec<&str>; 3] = Default::default();
    let mut highest = -1;
    let mut rest = Vec::new();
    for word in args.0 {
        let Some((kind, list)) = word.split_once('=') else {
            rest.push(*word);
            continue;
        };
        let at = kinds
            .iter()
            .position(|each| *each == kind)
            .ok_or_else(|| format!("no set {kind}"))?;
        // SAFETY: all zeroes is the empty set.
        let mut set: fd_set = unsafe { zeroed() };
        for name in list.split(',') {
            let fd = end.fd(name)?;
            highest = highest.max(fd);
            // SAFETY: the scripts keep these descriptors below FD_SETSIZE.
            unsafe { libc::FD_SET(fd, &raw mut set) };
            names[at].push(name);
        }
        sets[at] = Some(set);
    }
    let time = limit(rest.first().copied().unwrap_or("-1"))?;
    let [read, write, except] = sets
        .each_mut()
        .map(|set| set.as_mut().map_or(ptr::null_mut(), ptr::from_mut));
    let call = if operation == "select" {
        let mut time = time.map(|t| libc::timeval {
            tv_sec: t.tv_sec,
            tv_usec: t.tv_nsec / 1000,
        });
        sys!(select(
            highest + 1,
            read,
            write,
            except,
            time.as_mut().map_or(ptr::null_mut(), ptr::from_mut)
        ))
    } else {
        let mask = mask(rest.get(1).copied().unwrap_or("-"))?;
        sys!(pselect(
            highest + 1,
            read,
            write,
            except,
            pointer(time.as_ref()),
            pointer(mask.as_ref())
        ))
    };
    let mut text = call.to_string();
    for ((set, names), kind) in sets.iter().zip(names).zip(kinds) {
        let (Some(set), false) = (set, call.failed()) else {
            continue;
        };
        for name in names {
            let fd = end.fd(name)?;
            // SAFETY: as above.
            if unsafe { libc::FD_ISSET(fd, set) } {
                text.push_str(&format!(" {kind}:{name}"));
            }
        }
    }
    Ok(Reply::text(text))
}

/// `epadd EP S EVENTS`, `epmod`, `epdel`; the user data is the name.
fn control(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let (epoll, name) = (end.fd(args.get(0)?)?, args.get(1)?);
    let command = match operation {
        "epadd" => libc::EPOLL_CTL_ADD,
        "epmod" => libc::EPOLL_CTL_MOD,
        _ => libc::EPOLL_CTL_DEL,
    };
    let events = words::value(words::EPOLL, args.or(2, "-"))? as u32;
    let mut event = epoll_event {
        events,
        u64: end.label(name),
    };
    Ok(sys!(epoll_ctl(epoll, command, end.fd(name)?, &raw mut event)).into())
}

/// The events of one epoll_wait, by name, sorted: their order is nobody's promise.
fn shown(end: &End, call: Call, events: &[MaybeUninit<epoll_event>]) -> String {
    let mut text = call.to_string();
    let mut seen: Vec<String> = events[..call.length().min(events.len())]
        .iter()
        .map(|event| {
            // SAFETY: the kernel says that it filled in these.
            let event = unsafe { event.assume_init() };
            let label = event.u64;
            let name = lock(&end.labels)
                .get(label as usize)
                .cloned()
                .unwrap_or_else(|| format!("DATA {label:#x}"));
            format!(
                " {name}:{}",
                words::bits(words::EPOLL, i64::from(event.events))
            )
        })
        .collect();
    seen.sort();
    text.push_str(&seen.concat());
    text
}

/// `epwait EP MAXIMUM TIMEOUT`, `eppwait EP MAXIMUM TIMEOUT [MASK]`, `eppwait2 …`.
fn wait(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let epoll = end.fd(args.get(0)?)?;
    let maximum: c_int = args.number(1)?;
    let mut events = vec![MaybeUninit::<epoll_event>::uninit(); maximum.max(1) as usize];
    let at = events.as_mut_ptr().cast::<epoll_event>();
    let time: c_int = args.number(2)?;
    let mask = mask(args.or(3, "-"))?;
    let call = match operation {
        "epwait" => sys!(epoll_wait(epoll, at, maximum, time)),
        "eppwait" => sys!(epoll_pwait(
            epoll,
            at,
            maximum,
            time,
            pointer(mask.as_ref())
        )),
        _ => {
            let time = limit(args.get(2)?)?;
            sys!(epoll_pwait2(
                epoll,
                at,
                maximum,
                pointer(time.as_ref()),
                pointer(mask.as_ref())
            ))
        }
    };
    Ok(Reply::text(shown(end, call, &events)))
}

/// `epreaders EP S COUNT LENGTH`: COUNT threads wait on one epoll descriptor and read S until LENGTH bytes came in all;
/// answers how many bytes that were. What each thread got depends on the scheduler.
fn readers(end: &End, args: &Args) -> Result<Reply, String> {
    let (epoll, name) = (end.fd(args.get(0)?)?, args.get(1)?);
    let (fd, count, length): (c_int, usize, usize) =
        (end.fd(name)?, args.number(2)?, args.number(3)?);
    let rearm = words::value(words::EPOLL, args.or(4, "-"))? as u32;
    let label = end.label(name);
    let total = std::sync::atomic::AtomicUsize::new(0);
    let wrong = std::sync::atomic::AtomicUsize::new(0);
    use std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while total.load(Relaxed) < length {
                    let mut event = epoll_event {
                        events: 0,
                        u64: u64::MAX,
                    };
                    let got = sys!(epoll_wait(epoll, &raw mut event, 1, 100));
                    if got.result != 1 {
                        continue;
                    }
                    let data = event.u64;
                    if data != label {
                        wrong.fetch_add(1, Relaxed);
                    }
                    let mut piece = [0u8; 512];
                    loop {
                        let got = sys!(recv(
                            fd,
                            piece.as_mut_ptr().cast(),
                            piece.len(),
                            libc::MSG_DONTWAIT
                        ));
                        if got.result <= 0 {
                            break;
                        }
                        total.fetch_add(got.length(), Relaxed);
                    }
                    if rearm != 0 {
                        let mut event = epoll_event {
                            events: rearm,
                            u64: label,
                        };
                        sys!(epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, &raw mut event));
                    }
                }
            });
        }
    });
    Ok(Reply::text(format!(
        "= {} bytes, {} wrong events",
        total.load(Relaxed),
        wrong.load(Relaxed)
    )))
}

/// Calls that the kernel refuses.
fn wrong(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = |at| end.fd(args.get(at)?);
    Ok(match args.get(0)? {
        "create-0" => sys!(epoll_create(0)).into(),
        "create1-flags" => sys!(epoll_create1(1)).into(),
        "wait-null" => sys!(epoll_wait(fd(1)?, ptr::null_mut(), 4, 0)).into(),
        "wait-0" => {
            let mut event = epoll_event { events: 0, u64: 0 };
            sys!(epoll_wait(fd(1)?, &raw mut event, 0, 0)).into()
        }
        "wait-negative" => {
            let mut event = epoll_event { events: 0, u64: 0 };
            sys!(epoll_wait(fd(1)?, &raw mut event, -1, 0)).into()
        }
        "ctl-null" => sys!(epoll_ctl(
            fd(1)?,
            libc::EPOLL_CTL_ADD,
            fd(2)?,
            ptr::null_mut()
        ))
        .into(),
        "ctl-command" => {
            let mut event = epoll_event { events: 1, u64: 0 };
            sys!(epoll_ctl(fd(1)?, 77, fd(2)?, &raw mut event)).into()
        }
        "del-null" => sys!(epoll_ctl(
            fd(1)?,
            libc::EPOLL_CTL_DEL,
            fd(2)?,
            ptr::null_mut()
        ))
        .into(),
        "poll-null" => sys!(poll(ptr::null_mut(), 2, 0)).into(),
        "ppoll-time" => {
            let time = timespec {
                tv_sec: 0,
                tv_nsec: -1,
            };
            sys!(ppoll(ptr::null_mut(), 0, &raw const time, ptr::null())).into()
        }
        "select-negative" => sys!(select(
            -1,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut()
        ))
        .into(),
        other => return Err(format!("unknown wrong call {other}")),
    })
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    Ok(Some(match operation {
        "poll" | "ppoll" => poll(end, operation, args)?,
        "pollmany" => poll_many(end, args)?,
        "select" | "pselect" => select(end, operation, args)?,
        "epcreate" => made(end, args.get(0)?, || {
            sys!(epoll_create1(libc::EPOLL_CLOEXEC))
        }),
        "epadd" | "epmod" | "epdel" => control(end, operation, args)?,
        "epwait" | "eppwait" | "eppwait2" => wait(end, operation, args)?,
        "epreaders" => readers(end, args)?,
        "wrongwait" => wrong(end, args)?,
        _ => return Ok(None),
    }))
}
