//! The kept inputs: those that reach far into the code, and those that were once mishandled.

use std::{fs, path::Path};

/// Calls `holds` with every file of a target's corpus. The file name is printed if it panics.
pub(crate) fn each(target: &str, holds: impl Fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
    let mut files: Vec<_> = fs::read_dir(fuzz.join("corpus").join(target))
        .expect("the target's corpus")
        .map(|entry| entry.expect("a file of the corpus").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "a corpus of {} files is too small", files.len());
    for file in files {
        println!("{}", file.display());
        holds(&fs::read(&file).expect("the file"));
    }
}
