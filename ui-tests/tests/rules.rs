//! `rules.txt` maps every rule to the cases that break it: no rule without a case, no case without a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The cases there are, as `topic/case`.
fn cases() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let folders = fs::read_dir(root).expect("the cases are there");
    let mut cases = BTreeSet::new();
    for folder in folders.map(|folder| folder.expect("it can be read").path()) {
        let topic = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let Ok(files) = fs::read_dir(folder.join("fail")) else {
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

/// The rules, each with its cases.
fn rules() -> BTreeMap<String, Vec<String>> {
    let text = include_str!("../rules.txt");
    let mut rules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rule = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(case) = line.strip_prefix("  ") {
            rules.entry(rule.clone()).or_default().push(case.to_owned());
        } else {
            line.clone_into(&mut rule);
            assert!(rules.insert(rule.clone(), Vec::new()).is_none(), "twice: {rule}");
        }
    }
    rules
}

#[test]
fn every_rule_has_a_case() {
    let cases = cases();
    for (rule, its_cases) in rules() {
        assert!(!its_cases.is_empty(), "no case breaks the rule: {rule}");
        for case in its_cases {
            assert!(cases.contains(&case), "there is no case `{case}`, listed under: {rule}");
        }
    }
}

#[test]
fn every_case_has_a_rule() {
    let listed: Vec<String> = rules().into_values().flatten().collect();
    for case in cases() {
        let times = listed.iter().filter(|listed| **listed == case).count();
        assert_eq!(times, 1, "`{case}` stands under {times} rules of rules.txt, not one");
    }
}
