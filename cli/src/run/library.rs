//! Where librsock.so is, and what LD_PRELOAD becomes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const NAME: &str = "librsock.so";

/// The library that was named, or the first that exists: beside this program (as in a build directory), in ../lib and its
/// multiarch directory (as installed), or where the distribution keeps libraries.
pub fn find(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => search()?,
    };
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot find the library {}", path.display()))?;
    if !path.is_file() {
        bail!("the library {} is not a file", path.display());
    }
    let separator = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    if path.as_os_str().as_bytes().iter().any(separator) {
        bail!(
            "the path of the library {} has a blank or a colon in it, which LD_PRELOAD cannot express: \
             copy it elsewhere and name it with --library",
            path.display()
        );
    }
    Ok(path)
}

fn search() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let places = [
        beside.to_owned(),
        beside.join("../lib"),
        beside.join("../lib").join(&multiarch),
        beside.join("../lib64"),
        Path::new("/usr/local/lib").to_owned(),
        Path::new("/usr/lib").join(&multiarch),
        Path::new("/usr/lib64").to_owned(),
        Path::new("/usr/lib").to_owned(),
    ];
    match places.iter().map(|p| p.join(NAME)).find(|p| p.is_file()) {
        Some(path) => Ok(path),
        None => {
            let places: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
            bail!(
                "{NAME} is in none of {}: name it with --library or RSOCK_LIBRARY",
                places.join(", ")
            )
        }
    }
}

/// Ours first, so that its calls come before those of other preloaded libraries; what is there stays.
pub fn preload(library: &Path, present: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let present = present.unwrap_or_default().as_bytes();
    for entry in present.split(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        if !entry.is_empty() && entry != library.as_os_str().as_bytes() {
            value.push(":");
            value.push(OsStr::from_bytes(entry));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_keeps_what_is_there_and_names_us_once() {
        let ours = Path::new("/x/librsock.so");
        for (present, expected) in [
            (None, "/x/librsock.so"),
            (Some(""), "/x/librsock.so"),
            (Some("/a.so /b.so"), "/x/librsock.so:/a.so:/b.so"),
            (Some("/a.so:/x/librsock.so"), "/x/librsock.so:/a.so"),
        ] {
            assert_eq!(preload(ours, present.map(OsStr::new)), expected);
        }
    }

    #[test]
    fn a_path_that_ld_preload_cannot_express_is_refused() {
        let directory = std::env::temp_dir().join(format!("rsock test {}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let library = directory.join(NAME);
        std::fs::write(&library, b"").expect("a temporary file");
        let error = find(Some(&library)).expect_err("a blank in the path");
        std::fs::remove_dir_all(&directory).expect("removed");
        assert!(error.to_string().contains("LD_PRELOAD"), "{error}");
    }
}
