//! The book holds together: every page is in its table of contents and every entry of that has a page, every link leads
//! somewhere, and every page with Rust code is among those that the tests compile.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The crates for the registry.
const CRATES: [&str; 3] = ["session-derive", "session-openraft", "session-runtime"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A page of the book by its place below `book/src`, or the README by its own.
struct Page {
    name: String,
    text: String,
}

impl Page {
    /// The lines, and whether each is prose rather than code.
    fn lines(&self) -> impl Iterator<Item = (&str, bool)> {
        let mut fence: Option<&str> = None;
        self.text.lines().map(move |line| {
            let start = line.trim_start();
            let ticks = &start[..start.find(|c| c != '`').unwrap_or(start.len())];
            match fence {
                Some(open) => {
                    if ticks.len() >= open.len() && start.trim_end() == ticks {
                        fence = None;
                    }
                    (line, false)
                }
                None if ticks.len() >= 3 => {
                    fence = Some(ticks);
                    (line, false)
                }
                None => (line, true),
            }
        })
    }

    fn prose(&self) -> String {
        let lines: Vec<&str> = self.lines().filter_map(|(line, prose)| prose.then_some(line)).collect();
        without_code_spans(&lines.join("\n"))
    }

    /// What the links and includes of the page point at.
    fn targets(&self) -> Vec<String> {
        let prose = self.prose();
        let links = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let includes = prose.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next());
        links.chain(includes).map(str::to_owned).collect()
    }

    /// The anchors that mdBook gives the headings.
    fn anchors(&self) -> BTreeSet<String> {
        self.lines()
            .filter(|(line, prose)| *prose && line.starts_with('#'))
            .map(|(line, _)| anchor(line.trim_start_matches('#').trim()))
            .collect()
    }

    fn has_rust(&self) -> bool {
        self.lines().any(|(line, prose)| {
            !prose && line.trim_start().trim_start_matches('`').starts_with("rust") && line.contains("```")
        })
    }
}

/// As mdBook makes it: letters and digits in lower case, spaces as dashes, nothing else.
fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter_map(|c| match c {
            c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
            c if c.is_whitespace() => Some('-'),
            _ => None,
        })
        .collect()
}

/// `code` in a line may look like a link and is none.
fn without_code_spans(text: &str) -> String {
    text.split('`').enumerate().map(|(n, piece)| if n % 2 == 0 { piece } else { "code" }).collect()
}

/// Without `.` and `..`; `None` where it would leave its root.
fn tidy(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            part => parts.push(part.as_os_str().to_str()?.to_owned()),
        }
    }
    Some(parts.join("/"))
}

fn pages_below(folder: &Path, prefix: &str, found: &mut Vec<Page>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            pages_below(&path, &format!("{name}/"), found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(Page { name, text: fs::read_to_string(&path).unwrap() });
        }
    }
}

fn book() -> Vec<Page> {
    let mut pages = Vec::new();
    pages_below(&root().join("book/src"), "", &mut pages);
    assert!(pages.len() > 20, "the book is where it should be");
    pages
}

#[test]
fn the_table_of_contents_has_every_page_and_every_entry_has_one() {
    let pages = book();
    let summary = pages.iter().find(|page| page.name == "SUMMARY.md").unwrap();
    let entries: Vec<String> = summary.targets();
    let unique: BTreeSet<&String> = entries.iter().collect();
    assert_eq!(unique.len(), entries.len(), "a page stands twice in SUMMARY.md");
    for page in pages.iter().filter(|page| page.name != "SUMMARY.md") {
        assert!(unique.contains(&page.name), "{} is not in SUMMARY.md", page.name);
    }
    for entry in entries {
        assert!(
            pages.iter().any(|page| page.name == entry),
            "SUMMARY.md names {entry}, which does not exist"
        );
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = book();
    let mut problems = Vec::new();
    let mut count = 0;
    for page in &pages {
        for target in page.targets().into_iter().filter(|target| !target.contains("://")) {
            count += 1;
            let (file, wanted) = match target.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (&target[..], None),
            };
            let folder = Path::new(&page.name).parent().unwrap();
            let name = if file.is_empty() { Some(page.name.clone()) } else { tidy(&folder.join(file)) };
            // A link out of the book works in the repository and not in the built pages.
            let Some(name) = name else {
                problems.push(format!("{}: {target} leaves the book", page.name));
                continue;
            };
            if !root().join("book/src").join(&name).is_file() {
                problems.push(format!("{}: there is no {target}", page.name));
            } else if let Some(wanted) = wanted {
                let there = pages.iter().find(|page| page.name == name);
                if !there.is_some_and(|there| there.anchors().contains(wanted)) {
                    problems.push(format!("{}: there is no heading {target}", page.name));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 50, "links are found at all: {count}");
}

#[test]
fn every_link_of_the_other_pages_leads_somewhere() {
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let page = Page { name: name.to_owned(), text: fs::read_to_string(root().join(name)).unwrap() };
        for target in page.targets().into_iter().filter(|target| !target.contains("://")) {
            let (file, wanted) = target.split_once('#').unwrap_or((&target, ""));
            let path = root().join(if file.is_empty() { name } else { file });
            assert!(path.exists(), "{name}: there is no {target}");
            if !wanted.is_empty() {
                let there = Page { name: file.to_owned(), text: fs::read_to_string(path).unwrap() };
                assert!(there.anchors().contains(wanted), "{name}: there is no heading {target}");
            }
        }
    }
}

#[test]
fn the_crates_own_pages_link_to_nothing_that_a_registry_lacks() {
    for name in CRATES {
        let text = fs::read_to_string(root().join(name).join("README.md")).unwrap();
        let page = Page { name: name.to_owned(), text };
        for target in page.targets() {
            assert!(target.starts_with("https://"), "{name}/README.md: {target}");
        }
    }
}

#[test]
fn every_page_with_rust_code_is_compiled() {
    let compiled = fs::read_to_string(root().join("examples/src/lib.rs")).unwrap();
    let mut with_code: BTreeSet<String> =
        book().into_iter().filter(Page::has_rust).map(|page| format!("book/src/{}", page.name)).collect();
    with_code.insert("README.md".to_owned());
    with_code.extend(CRATES.map(|name| format!("{name}/README.md")));
    let included: BTreeSet<String> = compiled
        .split("include_str!(\"../../")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(included, with_code, "examples/src/lib.rs includes exactly the pages with Rust code");
}

#[test]
fn the_program_of_the_readme_is_an_example_that_runs() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let example = fs::read_to_string(root().join("examples/src/bin/poll.rs")).unwrap();
    let (words, program) = example.split_once("\n\n").unwrap();
    assert!(words.starts_with("//!"), "words about the example stand above it");
    assert!(
        readme.contains(&format!("```rust,no_run\n{program}```\n")),
        "README.md and examples/src/bin/poll.rs differ"
    );
}

/// All that the compiler says in the tests of the macros.
fn compiler_messages() -> String {
    let mut texts = String::new();
    let topics =
        fs::read_dir(root().join("ui-tests/ui")).unwrap().map(|topic| topic.unwrap().path().join("fail"));
    for folder in topics.filter(|folder| folder.is_dir()) {
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|ending| ending == "stderr") {
                texts += &fs::read_to_string(file).unwrap();
            }
        }
    }
    texts
}

#[test]
fn every_message_shown_is_one_that_the_compiler_gives() {
    let page = fs::read_to_string(root().join("book/src/reference/attributes.md")).unwrap();
    let messages = compiler_messages();
    let mut in_table = false;
    let mut shown = 0;
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        match cells[..] {
            [_, "the compiler says"] => in_table = true,
            [mistake, message] if in_table && line.starts_with('|') && !mistake.starts_with("---") => {
                shown += 1;
                assert!(messages.contains(message), "the compiler does not say {message:?}, for: {mistake}");
            }
            _ => in_table &= line.starts_with('|'),
        }
    }
    assert!(shown > 60, "the messages are found at all: {shown}");
}

/// The names in quotes or backticks that begin like a metric.
fn metric_names(text: &str, quote: char) -> BTreeSet<&str> {
    text.split(quote).filter(|word| word.starts_with("session_") && !word.contains(['(', ' ', ':'])).collect()
}

#[test]
fn every_metric_is_described() {
    let page = fs::read_to_string(root().join("book/src/reference/metrics.md")).unwrap();
    let code = fs::read_to_string(root().join("session-openraft/src/metrics.rs")).unwrap();
    let labels = ["session_expired"];
    let counted: BTreeSet<&str> =
        metric_names(&code, '"').into_iter().filter(|name| !labels.contains(name)).collect();
    let described: BTreeSet<&str> =
        metric_names(&page, '`').into_iter().filter(|name| !labels.contains(name)).collect();
    assert!(counted.len() > 5, "the metrics are found at all");
    assert_eq!(described, counted);
}
