//! Where the programs under test are: librsock.so, the agent, and C programs that are compiled when a test wants them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory that cargo builds this profile into.
fn profile_directory() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    let directory = exe.parent().unwrap_or(Path::new("."));
    if directory.ends_with("deps") {
        directory.parent().unwrap_or(directory).to_owned()
    } else {
        directory.to_owned()
    }
}

/// The agent.
///
/// # Panics
/// If it was not built.
pub fn case_program() -> PathBuf {
    let path = profile_directory().join("case");
    assert!(
        path.exists(),
        "{} is missing: cargo build -p rsock-tests --bin case",
        path.display()
    );
    path
}

/// librsock.so: what RSOCK_TEST_LIBRARY names, or what cargo builds from this workspace.
///
/// # Panics
/// If there is none.
pub fn library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = std::env::var_os("RSOCK_TEST_LIBRARY").map_or_else(built, PathBuf::from);
        assert!(path.exists(), "no library at {}", path.display());
        path
    })
}

fn built() -> PathBuf {
    let directory = profile_directory();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--package",
        "rsock-preload",
        "--manifest-path",
    ]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("Cargo.toml"));
    if let Some(target) = directory.parent() {
        command.arg("--target-dir").arg(target);
    }
    if directory.ends_with("release") {
        command.arg("--release");
    }
    let status = command.status();
    assert!(
        matches!(&status, Ok(status) if status.success()),
        "cannot build librsock.so: {status:?}"
    );
    directory.join("librsock.so")
}

/// Compiles tests/c/SOURCE with these options of cc, and returns the program.
///
/// # Panics
/// If there is no cc or the source does not compile.
pub fn compiled(source: &str, name: &str, options: &[&str]) -> PathBuf {
    let directory = profile_directory().join("conformance");
    std::fs::create_dir_all(&directory)
        .unwrap_or_else(|problem| panic!("{}: {problem}", directory.display()));
    let program = directory.join(name);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command
        .arg("-Wall")
        .arg("-Wextra")
        .arg("-Werror")
        .arg("-pthread")
        .arg("-o")
        .arg(&program)
        .arg(&path)
        .args(options);
    let status = command.status();
    assert!(
        matches!(&status, Ok(status) if status.success()),
        "{command:?}: {status:?}"
    );
    program
}
