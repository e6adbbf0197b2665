//! What docs/ repeats of the code is true: settings, reasons, exported functions, the names of tests and files.

use rsock_core::policy::{OTHER_VARIABLES, VARIABLES};
use rsock_core::stats::Reason;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The top of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of a document's tables, cell by cell, that begin with a cell for which `wanted` holds.
fn rows(document: &str, wanted: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    document
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
        .filter(|cells: &Vec<String>| cells.first().is_some_and(|first| wanted(first)))
        .collect()
}

/// What stands between single backticks.
fn quoted(document: &str) -> BTreeSet<&str> {
    document
        .split("```")
        .step_by(2)
        .flat_map(|prose| prose.split('`').skip(1).step_by(2))
        .collect()
}

/// All files below a directory whose names end so.
fn files(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

#[test]
fn operations_has_every_setting_as_the_code_has_it() {
    let operations = text("docs/operations.md");
    let documented = rows(&operations, |first| first.starts_with("`RSOCK_"));
    let numbers = VARIABLES.iter().map(|n| {
        let cells = [n.default, n.min, n.max].map(|number| number.to_string());
        let mut row = vec![format!("`{}`", n.variable)];
        row.extend(cells);
        row.push(n.meaning.to_owned());
        row
    });
    let others = OTHER_VARIABLES
        .iter()
        .map(|(name, meaning)| vec![format!("`{name}`"), (*meaning).to_owned()]);
    let expected: Vec<_> = numbers.chain(others).collect();
    assert_eq!(documented, expected);
}

#[test]
fn operations_has_every_reason_as_the_code_has_it() {
    let operations = text("docs/operations.md");
    let section = operations
        .split("\n## ")
        .find(|section| section.starts_with("Reasons\n"))
        .expect("a section on reasons");
    let documented = rows(section, |first| first.parse::<u8>().is_ok());
    assert_eq!(documented.len(), Reason::ALL.len());
    for (row, reason) in documented.iter().zip(Reason::ALL) {
        let expected = [
            (*reason as u8).to_string(),
            format!("`{}`", reason.name()),
            reason.explanation().to_owned(),
        ];
        assert_eq!(row[..3], expected);
    }
}

#[test]
fn a_reason_is_called_used_if_the_library_gives_it() {
    let mut sources = Vec::new();
    for directory in ["core/src", "preload/src"] {
        files(&root().join(directory), ".rs", &mut sources);
    }
    let code: String = sources
        .iter()
        .filter(|path| !path.to_string_lossy().contains("/stats/"))
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    let given = |reason: Reason| {
        let name = format!("Reason::{reason:?}");
        code.match_indices(&name).any(|(at, _)| {
            !code[at + name.len()..].starts_with(|next: char| next.is_alphanumeric())
        })
    };
    let operations = text("docs/operations.md");
    for row in rows(&operations, |first| first.parse::<u8>().is_ok()) {
        let reason = row[0].parse().ok().and_then(Reason::from_code);
        let reason = reason.expect("a code of ours");
        // The counters give this one themselves, to a stream that is on a lane.
        let expected = if reason == Reason::None || given(reason) {
            "yes"
        } else {
            "no"
        };
        assert_eq!(row[3], expected, "{}", reason.name());
    }
}

#[test]
fn compatibility_says_what_happens_to_every_exported_function() {
    let compatibility = text("docs/compatibility.md");
    let documented = quoted(&compatibility);
    let symbols = text("preload/symbols.txt");
    let missing: Vec<_> = symbols
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .filter(|name| !documented.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/compatibility.md: {missing:?}"
    );
}

#[test]
fn protocol_names_tests_that_exist() {
    let mut sources = Vec::new();
    files(&root().join("core/src/stream"), ".rs", &mut sources);
    files(&root().join("tests/tests"), ".rs", &mut sources);
    let code: String = sources
        .iter()
        .filter(|path| !path.ends_with("documents.rs"))
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    let protocol = text("docs/protocol.md");
    let mut checked = 0;
    for row in rows(&protocol, |first| first.starts_with('H')) {
        let shown_by = row.get(2).expect("a third cell");
        for name in quoted(shown_by) {
            if name.contains('/') {
                assert!(root().join(name).exists(), "{name} is not there");
            } else {
                let test = format!("fn {name}()");
                let script = format!("{name}: \"");
                assert!(
                    code.contains(&test) || code.contains(&script),
                    "no test {name}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} names found");
}

#[test]
fn links_lead_to_files() {
    let mut documents = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    files(&root().join("docs"), ".md", &mut documents);
    for document in documents {
        let content = fs::read_to_string(&document).expect("a document");
        for link in content.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = document.parent().expect("a directory").join(target);
            assert!(path.exists(), "{}: no {target}", document.display());
        }
    }
}
