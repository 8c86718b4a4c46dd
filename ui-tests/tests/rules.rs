//! `rules.txt` maps every rule to the cases that break it, `odd.txt` every odd but valid input to the cases that show
//! it: no line without a case, no case without a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const RULES: (&str, &str) = ("fail", include_str!("../rules.txt"));
const ODD: (&str, &str) = ("pass", include_str!("../odd.txt"));

/// The cases there are of a kind, as `topic/case`.
fn cases(kind: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let folders = fs::read_dir(root).expect("the cases are there");
    let mut cases = BTreeSet::new();
    for folder in folders.map(|folder| folder.expect("it can be read").path()) {
        let topic = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let Ok(files) = fs::read_dir(folder.join(kind)) else {
            continue;
        };
        for file in files.map(|file| file.expect("it can be read").path()) {
            if file.extension().is_some_and(|extension| extension == "rs") {
                let case = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
                cases.insert(format!("{topic}/{case}"));
            }
        }
    }
    cases
}

/// The lines of a list, each with its cases.
fn lines(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(case) = line.strip_prefix("  ") {
            lines.entry(current.clone()).or_default().push(case.to_owned());
        } else {
            line.clone_into(&mut current);
            assert!(lines.insert(current.clone(), Vec::new()).is_none(), "twice: {current}");
        }
    }
    lines
}

fn every_line_has_a_case((kind, list): (&str, &str)) {
    let cases = cases(kind);
    for (line, its_cases) in lines(list) {
        assert!(!its_cases.is_empty(), "no case for: {line}");
        for case in its_cases {
            assert!(cases.contains(&case), "there is no case `{case}`, listed under: {line}");
        }
    }
}

fn every_case_has_a_line((kind, list): (&str, &str)) {
    let listed: Vec<String> = lines(list).into_values().flatten().collect();
    for case in cases(kind) {
        let times = listed.iter().filter(|listed| **listed == case).count();
        assert_eq!(times, 1, "`{case}` stands under {times} lines of the list, not one");
    }
}

#[test]
fn every_rule_has_a_case_that_breaks_it() {
    every_line_has_a_case(RULES);
    every_case_has_a_line(RULES);
}

#[test]
fn every_odd_input_has_a_case_that_shows_it() {
    every_line_has_a_case(ODD);
    every_case_has_a_line(ODD);
}
