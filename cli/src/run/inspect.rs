//! What will keep a preloaded library from working in a program, found out before the program runs.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Architecture, Endianness, FileKind, Object, ReadCache, ReadRef};

/// The kernel follows this many interpreters of interpreters (BINPRM recursion in fs/exec.c).
const INTERPRETERS: usize = 5;

/// A reason why rsock will not work, or not fully.
#[derive(Debug, PartialEq, Eq)]
pub enum Warning {
    /// Runs with another user's rights.
    SetUid,
    /// Runs with another group's rights.
    SetGid,
    /// Has capabilities of its own.
    Capabilities,
    /// Has no dynamic linker.
    Static,
    /// Made by the Go compiler.
    Go,
    /// Another C library.
    Musl,
    /// Another machine, class or byte order than the library; with the program's architecture.
    Foreign(String),
    /// One of the above, for the interpreter of a script.
    Interpreter(PathBuf, Box<Warning>),
    /// The interpreter of a script is not there.
    NoInterpreter(PathBuf),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECURE: &str = "the dynamic linker ignores LD_PRELOAD, so it will run over plain TCP";
        match self {
            Warning::SetUid => write!(f, "is set-uid: {SECURE}"),
            Warning::SetGid => write!(f, "is set-gid: {SECURE}"),
            Warning::Capabilities => write!(f, "has file capabilities: {SECURE}"),
            Warning::Static => write!(
                f,
                "is statically linked: nothing can be preloaded, so it will run over plain TCP"
            ),
            Warning::Go => write!(
                f,
                "is a Go program: Go makes its system calls without the C library, so it will run over plain TCP"
            ),
            Warning::Musl => write!(
                f,
                "uses musl, the library is made for glibc: it may not start with the library in LD_PRELOAD"
            ),
            Warning::Foreign(architecture) => write!(
                f,
                "is made for {architecture}, the library is not: the dynamic linker will leave the library out"
            ),
            Warning::Interpreter(path, warning) => {
                write!(f, "its interpreter {} {warning}", path.display())
            }
            Warning::NoInterpreter(path) => {
                write!(f, "its interpreter {} is not there", path.display())
            }
        }
    }
}

/// Everything that will keep `library` from working in `program`. What cannot be read is not warned about: running it will
/// give the better error.
pub fn warnings(program: &Path, library: &Path) -> Vec<Warning> {
    let target = target_of(library);
    inspect(program, target.as_ref(), INTERPRETERS)
}

fn inspect(program: &Path, library: Option<&Target>, depth: usize) -> Vec<Warning> {
    let Ok(mut file) = File::open(program) else {
        return privileges(program);
    };
    let mut start = Vec::new();
    if file.by_ref().take(256).read_to_end(&mut start).is_err() {
        return Vec::new();
    }
    if let Some(line) = start.strip_prefix(b"#!") {
        // The kernel takes no notice of a script's set-uid bits.
        return match interpreter(line) {
            Some(path) if depth > 0 => inspect_interpreter(path, library, depth - 1),
            _ => Vec::new(),
        };
    }
    let mut warnings = privileges(program);
    warnings.extend(inspect_elf(&ReadCache::new(file), library));
    warnings
}

fn inspect_interpreter(path: PathBuf, library: Option<&Target>, depth: usize) -> Vec<Warning> {
    if !path.exists() {
        return vec![Warning::NoInterpreter(path)];
    }
    inspect(&path, library, depth)
        .into_iter()
        .map(|warning| match warning {
            Warning::Interpreter(..) => warning,
            other => Warning::Interpreter(path.clone(), Box::new(other)),
        })
        .collect()
}

/// The interpreter of a `#!` line; for env(1) the program that env will run.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| *byte == b' ' || *byte == b'\t')
        .filter(|word| !word.is_empty());
    let path = Path::new(OsStr::from_bytes(words.next()?));
    if path.file_name() != Some(OsStr::new("env")) {
        return Some(path.to_owned());
    }
    let program = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    match program {
        Some(name) => super::search(OsStr::from_bytes(name)),
        None => Some(path.to_owned()),
    }
}

/// Does exec change the rights of the process, so that the dynamic linker runs in secure mode (ld.so(8))?
fn privileges(program: &Path) -> Vec<Warning> {
    let Ok(metadata) = program.metadata() else {
        return Vec::new();
    };
    // SAFETY: neither takes arguments nor can fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let owner = (metadata.uid(), metadata.gid());
    let mut warnings = rights_of_owner(metadata.mode(), owner, (uid, gid));
    // For root they add nothing, so its mode stays normal (capabilities(7)).
    if uid != 0 && has_capabilities(program) {
        warnings.push(Warning::Capabilities);
    }
    warnings
}

/// What the set-uid and set-gid bits of a file of `owner` mean to `caller` (user and group each).
fn rights_of_owner(mode: u32, owner: (u32, u32), caller: (u32, u32)) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if mode & libc::S_ISUID != 0 && owner.0 != caller.0 {
        warnings.push(Warning::SetUid);
    }
    // Without the group's x bit it means mandatory locking, not set-gid.
    let set_gid = libc::S_ISGID | libc::S_IXGRP;
    if mode & set_gid == set_gid && owner.1 != caller.1 {
        warnings.push(Warning::SetGid);
    }
    warnings
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let attribute = c"security.capability".as_ptr();
    // SAFETY: two C strings; with no buffer the call only answers the size.
    unsafe { libc::getxattr(path.as_ptr(), attribute, std::ptr::null_mut(), 0) > 0 }
}

/// What the dynamic linker compares.
#[derive(PartialEq, Eq)]
struct Target {
    architecture: Architecture,
    is_64: bool,
    little_endian: bool,
}

impl Target {
    fn of<'data>(file: &impl Object<'data>) -> Target {
        Target {
            architecture: file.architecture(),
            is_64: file.is_64(),
            little_endian: file.is_little_endian(),
        }
    }

    fn name(&self) -> String {
        format!("{:?}", self.architecture).to_lowercase()
    }
}

fn target_of(library: &Path) -> Option<Target> {
    let cache = ReadCache::new(File::open(library).ok()?);
    Some(Target::of(&object::File::parse(&cache).ok()?))
}

fn inspect_elf<'data>(data: impl ReadRef<'data>, library: Option<&Target>) -> Vec<Warning> {
    let Ok(file) = object::File::parse(data) else {
        return Vec::new();
    };
    let target = Target::of(&file);
    if library.is_some_and(|library| *library != target) {
        return vec![Warning::Foreign(target.name())];
    }
    let found = match FileKind::parse(data) {
        Ok(FileKind::Elf64) => segments::<elf::FileHeader64<Endianness>, _>(data),
        Ok(FileKind::Elf32) => segments::<elf::FileHeader32<Endianness>, _>(data),
        _ => return Vec::new(),
    };
    let Ok(found) = found else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    // The note survives where section headers were stripped.
    if found.go_note || file.section_by_name(".note.go.buildid").is_some() {
        warnings.push(Warning::Go);
    }
    match found.interpreter {
        None => warnings.push(Warning::Static),
        Some(path) if path.windows(7).any(|part| part == b"ld-musl") => {
            warnings.push(Warning::Musl);
        }
        Some(_) => {}
    }
    // Of a static Go program it is enough to say that it is Go.
    if found.go_note {
        warnings.retain(|warning| *warning != Warning::Static);
    }
    warnings
}

struct Segments {
    interpreter: Option<Vec<u8>>,
    go_note: bool,
}

fn segments<'data, Elf, R>(data: R) -> object::Result<Segments>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let mut found = Segments {
        interpreter: None,
        go_note: false,
    };
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            found.interpreter = Some(path.to_vec());
        }
        if let Some(notes) = segment.notes(endian, data)? {
            found.go_note |= has_go_note::<Elf>(notes, endian)?;
        }
    }
    Ok(found)
}

fn has_go_note<Elf: FileHeader>(
    mut notes: NoteIterator<'_, Elf>,
    endian: Elf::Endian,
) -> object::Result<bool> {
    while let Some(note) = notes.next()? {
        if note.name() == b"Go" && note.n_type(endian) == elf::NT_GO_BUILD_ID {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little-endian ELF file for x86-64 with these program headers and nothing else.
    fn elf_file(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for half in [elf::ET_EXEC, elf::EM_X86_64] {
            file.extend(half.to_le_bytes());
        }
        file.extend(1u32.to_le_bytes());
        for word in [0u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [64u16, 56, segments.len() as u16, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len() as u64;
        for (kind, content) in segments {
            let length = content.len() as u64;
            file.extend(kind.to_le_bytes());
            file.extend(elf::PF_R.to_le_bytes());
            for word in [offset, 0, 0, length, length, 4] {
                file.extend(word.to_le_bytes());
            }
            offset += length;
        }
        for (_, content) in segments {
            file.extend_from_slice(content);
        }
        file
    }

    fn check(file: &[u8], architecture: Architecture) -> Vec<Warning> {
        let library = Target {
            architecture,
            is_64: true,
            little_endian: true,
        };
        inspect_elf(file, Some(&library))
    }

    const GLIBC: (u32, &[u8]) = (elf::PT_INTERP, b"/lib64/ld-linux-x86-64.so.2\0");
    const MUSL: (u32, &[u8]) = (elf::PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0");
    const GO: (u32, &[u8]) = (elf::PT_NOTE, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
    const GNU: (u32, &[u8]) = (elf::PT_NOTE, b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd");

    #[test]
    fn each_kind_of_program_gets_its_warning() {
        use Architecture::{Aarch64, X86_64};
        let none: &[Warning] = &[];
        assert_eq!(check(&elf_file(&[GLIBC, GNU]), X86_64), none);
        assert_eq!(check(&elf_file(&[]), X86_64), [Warning::Static]);
        assert_eq!(check(&elf_file(&[MUSL]), X86_64), [Warning::Musl]);
        assert_eq!(check(&elf_file(&[GO]), X86_64), [Warning::Go]);
        assert_eq!(check(&elf_file(&[GLIBC, GO]), X86_64), [Warning::Go]);
        let foreign = [Warning::Foreign("x86_64".to_owned())];
        assert_eq!(check(&elf_file(&[GLIBC]), Aarch64), foreign);
        assert_eq!(check(b"\x7fELF, or is it?", X86_64), none);
    }

    #[test]
    fn only_rights_that_are_not_ours_matter() {
        let none: &[Warning] = &[];
        let owner = (1, 2);
        for (mode, caller, expected) in [
            (0o755, (1000, 1000), none),
            (0o4755, (1000, 2), &[Warning::SetUid]),
            (0o4755, (1, 1000), none),
            (0o2755, (1, 1000), &[Warning::SetGid]),
            (0o2745, (1, 1000), none),
            (0o2755, (1000, 2), none),
            (0o6755, (1000, 1000), &[Warning::SetUid, Warning::SetGid]),
        ] {
            assert_eq!(rights_of_owner(mode, owner, caller), expected, "{mode:o}");
        }
    }

    #[test]
    fn a_script_is_run_by_its_interpreter() {
        let interpreter = |line: &str| interpreter(line.as_bytes());
        assert_eq!(interpreter("/bin/sh\n"), Some("/bin/sh".into()));
        assert_eq!(interpreter("  /bin/awk -f\nBEGIN"), Some("/bin/awk".into()));
        let sh = super::super::search(OsStr::new("sh"));
        assert!(sh.is_some());
        assert_eq!(interpreter("/usr/bin/env sh\n"), sh);
        assert_eq!(interpreter("/usr/bin/env -S A=1 sh -e\n"), sh);
        assert_eq!(interpreter("\n"), None);
    }
}
