//! With feature `bindgen`: what is checked in says the same as the headers of this machine.
#![cfg(feature = "bindgen")]

use std::collections::HashSet;
use std::path::Path;

/// Top-level items, each without line breaks so that formatting does not count.
fn items(text: &str) -> HashSet<String> {
    let mut items = HashSet::new();
    let mut item = String::new();
    for line in text.lines().filter(|line| !line.starts_with("/*")) {
        let starts_item = !line.starts_with([' ', '}', ')', ']'])
            && !item.trim_start().starts_with("#[")
            && !item.is_empty();
        if starts_item || line.is_empty() {
            items.insert(std::mem::take(&mut item));
        }
        item.push_str(line.trim());
        item.push(' ');
        if line.starts_with('}') || (line.ends_with(';') && !line.starts_with(' ')) {
            items.insert(std::mem::take(&mut item));
        }
    }
    items.insert(item);
    items
}

/// Every declaration of src/bindings.rs is among those generated here (later headers may have more).
#[test]
fn checked_in_bindings_agree_with_the_headers() {
    let generated = std::fs::read_to_string(concat!(env!("OUT_DIR"), "/bindings.rs"))
        .expect("build.rs wrote it");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings.rs");
    if std::env::var_os("RSOCK_UPDATE_BINDINGS").is_some() {
        std::fs::write(&path, &generated).expect("the source tree is writable");
    }
    let checked_in = std::fs::read_to_string(&path).expect("it is checked in");
    assert!(
        checked_in.lines().count() > 1000,
        "src/bindings.rs is not a generated file"
    );
    let generated = items(&generated);
    let missing: Vec<_> = items(&checked_in).difference(&generated).cloned().collect();
    assert!(
        missing.is_empty(),
        "the headers of this machine disagree with src/bindings.rs:\n{}",
        missing.join("\n")
    );
}
