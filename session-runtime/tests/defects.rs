//! The planted defects stay plantable: every patch in the folder beside this file still fits the source, and the
//! test it names exists. `cargo run --release -p session-bench --bin defects` plants them and runs those tests.

use std::fs;
use std::path::{Path, PathBuf};

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The patches by name.
fn patches() -> Vec<(String, String)> {
    let folder = fs::read_dir(package().join("tests/defects")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// What a patch changes: the file, and the lines that must stand in it, one list a hunk.
fn hunks(patch: &str) -> Vec<(String, Vec<&str>)> {
    let mut file = String::new();
    let mut hunks: Vec<(String, Vec<&str>)> = Vec::new();
    for line in patch.lines() {
        if let Some(name) = line.strip_prefix("--- a/session-runtime/") {
            name.clone_into(&mut file);
        } else if line.starts_with("@@") {
            hunks.push((file.clone(), Vec::new()));
        } else if let Some((_, lines)) = hunks.last_mut()
            && let Some(old) = line.strip_prefix(' ').or_else(|| line.strip_prefix('-'))
            && !line.starts_with("---")
        {
            lines.push(old);
        }
    }
    hunks
}

#[test]
fn the_seventeen_defects_are_there() {
    let numbers: Vec<String> = patches().iter().map(|(name, _)| name[..2].to_owned()).collect();
    let expected: Vec<String> = (1..=17).map(|number| format!("{number:02}")).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn every_patch_still_fits_the_source() {
    for (name, patch) in patches() {
        let hunks = hunks(&patch);
        assert!(!hunks.is_empty(), "{name} changes nothing");
        for (file, old) in hunks {
            let source = fs::read_to_string(package().join(&file)).unwrap();
            let source: Vec<&str> = source.lines().collect();
            assert!(
                !old.is_empty() && source.windows(old.len()).any(|lines| lines == old),
                "{name}: {file} has no such lines any more:\n{}",
                old.join("\n")
            );
        }
    }
}

#[test]
fn every_patch_says_what_is_wrong_and_which_test_catches_it() {
    for (name, patch) in patches() {
        let words = patch.lines().take_while(|line| line.starts_with("# ")).count();
        assert!(words >= 2, "{name} must start with the defect in plain words");
        let caught = patch.lines().find_map(|line| line.strip_prefix("# caught by: "));
        let (target, test) = caught.and_then(|words| words.split_once(' ')).expect(&name);
        let source = fs::read_to_string(package().join(format!("tests/{target}.rs"))).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "{name}: {target} has no test {test}");
    }
}
