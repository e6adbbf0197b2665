//! `rsock run`: puts the library into LD_PRELOAD, says on stderr what will keep it from working, and becomes the program.

mod inspect;
mod library;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

/// Exit codes as env(1) has them.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What to run, and how.
#[derive(Args)]
pub struct Arguments {
    /// The library to preload [default: librsock.so beside this program or where libraries are]
    #[arg(long, env = "RSOCK_LIBRARY", value_name = "PATH")]
    library: Option<PathBuf>,
    /// Do not say what will keep rsock from working in the program
    #[arg(long, short)]
    quiet: bool,
    /// What the library logs (RSOCK_LOG)
    #[arg(long, value_enum, value_name = "LEVEL")]
    log: Option<LogLevel>,
    /// Where the library logs to (RSOCK_LOG_FILE)
    #[arg(long, value_name = "PATH")]
    log_file: Option<PathBuf>,
    /// A stream asks for a lane after this many messages in either direction (RSOCK_HOP_MESSAGES)
    #[arg(long, value_name = "N")]
    hop_messages: Option<u64>,
    /// A stream asks for a lane after this many bytes in either direction (RSOCK_HOP_BYTES)
    #[arg(long, value_name = "BYTES")]
    hop_bytes: Option<u64>,
    /// Size of a lane's rings, a power of two (RSOCK_RING_SIZE)
    #[arg(long, value_name = "BYTES", value_parser = power_of_two)]
    ring_size: Option<u64>,
    /// How long a waiting thread may spin before it sleeps; 0: never spin (RSOCK_SPIN_US)
    #[arg(long, value_name = "MICROSECONDS")]
    spin_us: Option<u64>,
    /// How long "no" from a peer is remembered (RSOCK_NEGATIVE_CACHE_MS)
    #[arg(long, value_name = "MILLISECONDS")]
    negative_cache_ms: Option<u64>,
    /// How much memory the rings of a process may take (RSOCK_MEMORY_LIMIT)
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<u64>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

fn power_of_two(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(size) if size.is_power_of_two() => Ok(size),
        Ok(size) => Err(format!("{size} is not a power of two")),
        Err(error) => Err(error.to_string()),
    }
}

impl Arguments {
    /// The variables that the options stand for.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let number = |value: Option<u64>| value.map(|value| value.to_string().into());
        let log = self.log.and_then(|level| level.to_possible_value());
        [
            ("RSOCK_LOG", log.map(|level| level.get_name().into())),
            ("RSOCK_LOG_FILE", self.log_file.clone().map(Into::into)),
            ("RSOCK_HOP_MESSAGES", number(self.hop_messages)),
            ("RSOCK_HOP_BYTES", number(self.hop_bytes)),
            ("RSOCK_RING_SIZE", number(self.ring_size)),
            ("RSOCK_SPIN_US", number(self.spin_us)),
            ("RSOCK_NEGATIVE_CACHE_MS", number(self.negative_cache_ms)),
            ("RSOCK_MEMORY_LIMIT", number(self.memory_limit)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// Becomes the program; comes back only if that is not possible.
pub fn run(arguments: &Arguments) -> ExitCode {
    let library = match library::find(arguments.library.as_deref()) {
        Ok(library) => library,
        Err(error) => {
            eprintln!("rsock run: {error:#}");
            return FAILED.into();
        }
    };
    let [name, ..] = arguments.command.as_slice() else {
        return FAILED.into(); // The argument parser requires one.
    };
    if !arguments.quiet
        && let Some(program) = search(name)
    {
        for warning in inspect::warnings(&program, &library) {
            eprintln!("rsock run: {}: {warning}", program.display());
        }
    }
    for (variable, value) in arguments.variables() {
        // SAFETY: no other thread exists that could read the environment meanwhile.
        unsafe { std::env::set_var(variable, value) };
    }
    let preload = library::preload(&library, std::env::var_os("LD_PRELOAD").as_deref());
    // SAFETY: as above.
    unsafe { std::env::set_var("LD_PRELOAD", preload) };
    let error = execute(&arguments.command);
    eprintln!("rsock run: {}: {error}", name.display());
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND.into(),
        _ => NOT_EXECUTABLE.into(),
    }
}

/// execvp(3) itself: std's would reset the signal mask and SIGPIPE, which the program is to inherit as they are.
fn execute(command: &[OsString]) -> io::Error {
    let words: Result<Vec<CString>, _> = command
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect();
    let words = match words {
        Ok(words) => words,
        Err(error) => return io::Error::new(io::ErrorKind::InvalidInput, error),
    };
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: a null-terminated array of C strings that outlive the call.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// The file that execvp(3) would run for this name; `None` if there is none.
fn search(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file() && executable(path))
}

fn executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a C string; access only reads it.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}
