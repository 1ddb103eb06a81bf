//! The house rules that neither rustc nor clippy checks, for example: which layers may import each other, which
//! names may occur in which files, and the length of files.

use crate::import_graph::{imports, loops};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers that each layer may use. `cli` may use all of them; only the binaries may use `cli`.
pub(crate) const MAY_USE: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("error", &[]),
    ("os", &["wire"]),
    ("settings", &["wire", "error", "llm"]),
    ("protocol", &["wire"]),
    ("store", &["wire", "os", "protocol"]),
    ("llm", &["wire", "os"]),
    ("rpc", &[]),
    ("acp", &["wire", "os", "rpc"]),
    ("leases", &["wire", "os", "protocol", "store"]),
    ("work", &["wire", "os", "store", "leases"]),
    ("undo", &["wire", "os", "store", "leases"]),
    ("bus", &["wire", "os", "store"]),
    ("tasks", &["wire", "protocol", "store", "bus"]),
    ("timers", &["wire", "os", "protocol", "store", "bus"]),
    ("relay", &["wire", "os", "store", "bus"]),
    ("mcp", &["wire", "os", "rpc", "llm"]),
    (
        "tools",
        &[
            "wire", "os", "protocol", "bus", "store", "tasks", "timers", "leases", "work", "undo",
            "mcp",
        ],
    ),
    ("loopback", &[]),
    ("tool_server", &["wire", "rpc", "loopback", "mcp", "tools"]),
    (
        "agent",
        &[
            "wire",
            "os",
            "protocol",
            "store",
            "bus",
            "tasks",
            "timers",
            "leases",
            "llm",
            "acp",
            "tools",
            "tool_server",
            "work",
        ],
    ),
    (
        "supervise",
        &[
            "wire", "os", "protocol", "store", "bus", "tasks", "leases", "tools", "settings",
            "error", "work",
        ],
    ),
    ("view", &["wire", "os", "protocol", "store", "tools"]),
    ("web", &["wire", "os", "store", "loopback", "view"]),
    ("ui", &["wire", "os", "tools", "view", "agent", "undo"]),
    (
        "app",
        &[
            "wire",
            "acp",
            "error",
            "os",
            "settings",
            "protocol",
            "store",
            "llm",
            "bus",
            "tasks",
            "timers",
            "leases",
            "mcp",
            "tools",
            "tool_server",
            "agent",
            "supervise",
            "view",
            "web",
            "ui",
            "work",
            "undo",
        ],
    ),
];

/// The folders with the code of the programs. Only the first one has layers.
const SOURCES: [&str; 2] = ["src", "host/src"];

/// The maximum length of a file in `SOURCES`, in lines.
const LONGEST_FILE: usize = 600;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![below.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn rust_files(below: &Path) -> Vec<PathBuf> {
    let mut found = files_below(below);
    found.retain(|file| file.extension().is_some_and(|end| end == "rs"));
    found
}

/// The code of all programs.
fn sources() -> Vec<PathBuf> {
    SOURCES.iter().flat_map(|folder| rust_files(&root().join(folder))).collect()
}

/// The layer of a file; `host` for all files of that crate.
fn layer_of(file: &Path) -> String {
    let Ok(inside) = file.strip_prefix(root().join("src")) else { return "host".into() };
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// The layers that a source text names as `crate::layer`, including those in `use crate::{a, b::c}`.
fn layers_used(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let word = |s: &str| {
            s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
        };
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && c.is_alphabetic() => {
                        used.push(word(&group[i..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            used.push(word(rest));
        }
    }
    used
}

#[test]
fn imports_point_down() {
    let table: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    for file in rust_files(&root().join("src")) {
        let layer = layer_of(&file);
        if layer == "cli" || layer == "bin" || layer == "lib" {
            continue;
        }
        let allowed = table.get(layer.as_str()).unwrap_or_else(|| panic!("{layer} has no row"));
        for used in layers_used(&fs::read_to_string(&file).unwrap()) {
            let fine = used == layer || allowed.contains(&used.as_str());
            assert!(fine, "{} uses crate::{used}, which {layer} may not", file.display());
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_loop() {
    for main in [
        "src/lib.rs",
        "tests/it/main.rs",
        "tests/torture/main.rs",
        "benches/team/main.rs",
        "host/src/lib.rs",
        "host/tests/it/main.rs",
    ] {
        let found = loops(&imports(&root().join(main)));
        assert!(found.is_empty(), "these files import each other: {found:#?}");
    }
}

/// A conversation must work without a mailbox, a roster entry or a life lock.
#[test]
fn a_conversation_does_not_depend_on_membership() {
    let folder = root().join("src/agent/conversation");
    for file in rust_files(&folder) {
        let text = fs::read_to_string(&file).unwrap();
        for layer in layers_used(&text) {
            let member_only = ["bus", "tasks", "supervise"].contains(&layer.as_str());
            assert!(!member_only, "{} uses crate::{layer}", file.display());
        }
        for word in ["Mailbox", "TeamDir", "LifeLock", "roster", "crate::agent::"] {
            let text = text
                .replace("crate::agent::conversation", "")
                .replace("crate::agent::progress", "");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found = code.filter(|line| line.contains(word)).count();
            assert!(found == 0, "{} names {word}, which belongs to a member", file.display());
        }
    }
}

#[test]
fn only_os_touches_the_machine() {
    for file in rust_files(&root().join("src")) {
        // `std::os::unix::` ends like `nix::`.
        let text = fs::read_to_string(&file).unwrap().replace("unix::", "");
        let layer = layer_of(&file);
        for word in ["nix::", "signal_hook", "unsafe "] {
            let found = layer != "os" && text.contains(word);
            assert!(!found, "{} uses {word}, which belongs into os", file.display());
        }
        let knows_os = !["os", "rpc", "loopback", "tool_server"].contains(&layer.as_str());
        let starts_task = knows_os && text.contains("tokio::task::spawn_");
        assert!(!starts_task, "{} starts a task with its type: see os::spawn", file.display());
        for word in ["std::fs", "std::net", "std::process", "std::time", "std::thread", "tracing::"]
        {
            let found = matches!(layer.as_str(), "wire" | "protocol") && text.contains(word);
            // A deadline is a `Duration`, which is in `std::time`. Other rules refuse the clocks.
            let duration = word == "std::time"
                && (layer == "protocol"
                    || ["limits.rs", "time.rs"]
                        .iter()
                        .any(|name| file.ends_with(Path::new("src/wire").join(name))));
            assert!(!found || duration, "{} uses {word}: {layer} does no I/O", file.display());
        }
    }
}

/// Calls that wait for the disk, for another process or for a time.
const WAITS: &[&str] = &[".sync_all()", ".sync_data()", "FileExt::lock(", "park_timeout("];

/// Files with waits that need no check: settings are read before any event loop runs; the other file helps
/// tests.
const MAY_WAIT: &[&str] = &["src/settings/trust.rs", "src/tools/command/contained_agent.rs"];

#[test]
fn every_wait_refuses_to_block_an_event_loop() {
    for file in sources() {
        let name = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let code = code_of(&fs::read_to_string(&file).unwrap());
        let waits: usize = WAITS.iter().map(|wait| code.matches(wait).count()).sum();
        let refused = code.matches("check_blocking(\"").count();
        let may_wait = refused >= waits || MAY_WAIT.contains(&name.as_str());
        assert!(may_wait, "{name}: {waits} waits, {refused} of them with `check_blocking`");
    }
}

#[test]
fn only_store_names_paths_of_the_team_folder() {
    for file in sources() {
        if matches!(layer_of(&file).as_str(), "store") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code: String = text
            .split("#[cfg(test)]")
            .next()
            .unwrap()
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        for literal in ["\"inbox/", "\"config.json\"", ".jsonl\"", "\"run/", "\"dead/"] {
            assert!(!code.contains(literal), "{} names {literal}: ask TeamDir", file.display());
        }
    }
}

/// Whether a line of code assigns the `status` of a roster entry, or borrows it mutably.
fn changes_a_status(line: &str) -> bool {
    line.match_indices(".status").any(|(at, field)| {
        let (before, after) = (&line[..at], line[at + field.len()..].trim_start());
        let is_longer_name = after.starts_with(|c: char| c.is_alphanumeric() || "_(".contains(c));
        let object_at = before.rfind(|c: char| !c.is_alphanumeric() && !"_.".contains(c));
        let is_lent = before[..object_at.map_or(0, |at| at + 1)].trim_end().ends_with("&mut");
        let is_assigned = after.starts_with('=') && !after.starts_with("==");
        // A tuple assignment like `(member.status, member.since) = …`.
        let is_in_tuple = after.starts_with([',', ')'])
            && line
                .split_once(") = ")
                .is_some_and(|(left, _)| at < left.len() && left.contains('('));
        !is_longer_name && (is_assigned || is_in_tuple || is_lent)
    })
}

#[test]
fn only_the_lifecycle_changes_the_status_of_a_roster_entry() {
    for bad in [
        "lead.status = Status::Idle;",
        "(member.status, member.since) = (status, now);",
        "std::mem::replace(&mut member.status, Status::Stopping)",
    ] {
        assert!(changes_a_status(bad), "{bad}");
    }
    for fine in ["if member.status == Status::Idle {", "let status = member.status;", "x.status()"]
    {
        assert!(!changes_a_status(fine), "{fine}");
    }
    for file in sources() {
        let path = file.strip_prefix(root()).unwrap().display().to_string();
        // Tasks have a status, too, with other rules.
        let is_of_tasks = path.contains("tasks");
        let is_test = path.ends_with("tests.rs");
        if is_of_tasks || is_test {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for line in text.split("#[cfg(test)]").next().unwrap().lines() {
            let is_table_applied =
                line.contains("lifecycle::apply(") || line.contains("lifecycle::apply_spawned(");
            let is_literal =
                line.contains(" status: Status::") && !path.ends_with("wire/roster.rs");
            let is_change = changes_a_status(line) && !is_table_applied;
            assert!(
                !is_change && !is_literal,
                "{path} assigns a status: apply a LifecycleEvent\n{line}"
            );
        }
    }
}

#[test]
fn files_stay_small_and_say_what_they_are() {
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines: split it", file.display());
        assert!(text.starts_with("//!"), "{} has no header", file.display());
        if layer_of(&file) == "bin" {
            assert!(lines < 40, "{} has {lines} lines: binaries stay under 40", file.display());
        }
    }
}

/// Tool names that are also the name of something else (a message kind, a status, a program), with the files
/// that may quote them.
const OTHER_WORDS: &[(&str, &[&str])] = &[
    ("broadcast", &["wire/message", "wire/name.rs", "bus/", "cli/", "tools/mail.rs"]),
    ("shutdown_response", &["wire/message", "tools/mail.rs"]),
    ("idle", &["wire/roster.rs", "ui/"]),
    // OpenCode names its permissions so.
    ("bash", &["os/", "settings/agents.rs"]),
];

/// The code of a source file without comments and without its module of tests.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names of all tools, each with the file of its spec.
fn tools() -> Vec<(String, PathBuf)> {
    let mut tools = Vec::new();
    for file in rust_files(&root().join("src/tools")) {
        let text = fs::read_to_string(&file).unwrap();
        for spec in code_of(&text).split("SPEC: ToolSpec = ToolSpec {").skip(1) {
            let name = spec.split("name: \"").nth(1).unwrap().split('"').next().unwrap();
            tools.push((name.to_owned(), file.clone()));
        }
    }
    tools
}

/// Every decision about a tool is a field of its spec: no other file compares or lists the names of tools.
#[test]
fn only_the_file_of_a_tool_quotes_its_name() {
    let src = root().join("src");
    let tools = tools();
    assert!(tools.len() >= 20, "specs are not found: {tools:?}");
    for file in rust_files(&src) {
        let path = file.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        // The rehearsal model calls tools by name, as every model does.
        let is_test = path.ends_with("tests.rs") || path.contains("tests/");
        if is_test || path.starts_with("llm/rehearsal") {
            continue;
        }
        let code = code_of(&fs::read_to_string(&file).unwrap());
        for (name, own) in &tools {
            let others = OTHER_WORDS.iter().filter(|(word, _)| word == name);
            let is_other_word =
                others.flat_map(|(_, files)| *files).any(|start| path.starts_with(start));
            let is_quoted = code.contains(&format!("\"{name}\""));
            assert!(
                !is_quoted || is_other_word || file == *own,
                "{path} quotes the tool {name}: ask its spec (crate::tools::find)"
            );
        }
    }
}

/// `ui` and `view` may look up the spec of a tool and the content after an edit, and use nothing else of `tools`.
#[test]
fn views_only_look_tools_up() {
    for layer in ["ui", "view"] {
        for file in rust_files(&root().join("src").join(layer)) {
            let text = fs::read_to_string(&file).unwrap();
            for used in text.split("crate::tools::").skip(1) {
                let is_lookup = used.starts_with("find") || used.starts_with("edit_preview;");
                assert!(is_lookup, "{} uses more of tools", file.display());
            }
        }
    }
}

#[test]
fn every_test_file_is_listed() {
    let topics = ["doors", "mail", "lifecycle", "permission", "provider", "ui", "fault", "walls"];
    let topics = topics.map(|topic| (format!("tests/it/{topic}"), "mod.rs"));
    let programs = ["tests/it", "tests/torture", "host/tests/it"];
    let programs = programs.map(|program| (program.to_owned(), "main.rs"));
    let support = ["tests/support", "host/tests/it/rig", "host/tests/it/rig/self_test"];
    let support = support.map(|folder| (folder.to_owned(), "mod.rs"));
    for (folder, list) in programs.into_iter().chain(support).chain(topics) {
        let listed = fs::read_to_string(root().join(&folder).join(list)).unwrap();
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let is_module =
                path.extension().is_some_and(|end| end == "rs") || path.join("mod.rs").exists();
            if is_module && name != list.trim_end_matches(".rs") {
                let is_listed = listed.contains(&format!("mod {name};"));
                assert!(is_listed, "{folder}/{name} is not in its {list}");
            }
        }
    }
}

#[test]
fn every_layer_is_explained() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let layer = name.trim_end_matches(".rs").to_owned();
        let named = architecture.contains(&format!("`{layer}`"));
        assert!(named || layer == "lib", "ARCHITECTURE.md does not explain `{layer}`");
    }
}

/// Words from earlier versions that are not used anymore, in the singular. Each has been replaced by a standard
/// term.
const RETIRED_WORDS: &[&str] = &[
    "banter",
    "bury",
    "cage",
    "converse",
    "crew",
    "crowd",
    "deaf",
    "deed",
    "departure",
    "desk",
    "docket",
    "handbook",
    "happening",
    "haste",
    "heed",
    "inlet",
    "innocent",
    "insist",
    "keeper",
    "mending",
    "oneself",
    "purse",
    "recruit",
    "repose",
    "ruling",
    "sighting",
    "stir",
    "takedown",
    "tame",
    "veil",
    "vigil",
    "whoever",
];

/// Retired names of several words.
const RETIRED_PHRASES: &[&str] = &["broken off", "see out", "set aside", "want of memory"];

/// Returns the words of a line in lower case: the parts of names, too.
fn words_of(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in line.chars() {
        if !c.is_ascii_alphabetic() || (was_lower && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        if c.is_ascii_alphabetic() {
            words.last_mut().unwrap().push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn no_retired_name_is_used() {
    let mut files: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|it| root().join(it)).into();
    for folder in ["src", "tests", "benches", "host", "docs", "eval", "scripts"] {
        files.extend(files_below(&root().join(folder)));
    }
    // The golden files are frozen.
    let is_frozen = |file: &Path| file.to_string_lossy().contains("golden");
    files.retain(|file| !is_frozen(file) && !file.ends_with("tests/it/tidy.rs"));
    let mut looked = 0;
    for file in files {
        // A binary file, such as a picture, has no names.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        looked += 1;
        for line in text.lines() {
            let words = words_of(line);
            let is_retired = |word: &String| {
                let singular = word.strip_suffix('s').unwrap_or(word);
                RETIRED_WORDS.contains(&word.as_str()) || RETIRED_WORDS.contains(&singular)
            };
            let found = words.iter().find(|word| is_retired(word));
            assert_eq!(found, None, "{}: {line}", file.display());
            let text = format!(" {} ", words.join(" "));
            let found = RETIRED_PHRASES.iter().find(|it| text.contains(&format!(" {it} ")));
            assert_eq!(found, None, "{}: {line}", file.display());
        }
    }
    assert!(looked > 400, "only {looked} files");
}

#[test]
fn the_words_of_a_line_include_the_parts_of_names() {
    assert_eq!(
        words_of("fn of_crew(ItsDesk: 8) // e.g."),
        ["fn", "of", "crew", "its", "desk", "e", "g"]
    );
}

/// The first words of a comment that is a clause instead of a sentence.
const CLAUSES: &[&str] = &["How", "What", "When", "Where", "Which", "Who", "Whom", "Whose", "Why"];

#[test]
fn every_comment_is_a_sentence() {
    for folder in ["src", "tests", "benches", "host"] {
        for file in rust_files(&root().join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let mut is_first = true;
            for line in text.lines() {
                let comment = line.trim_start().strip_prefix("//");
                if let Some(comment) = comment.filter(|_| is_first) {
                    let sentence = comment.trim_start_matches(['/', '!']).trim_start();
                    let word = sentence.split(|c: char| !c.is_alphabetic()).next().unwrap();
                    assert!(!CLAUSES.contains(&word), "{}: {line}", file.display());
                }
                is_first = comment.is_none_or(|text| text.trim_matches(['/', '!', ' ']).is_empty());
            }
        }
    }
}

/// The log is for people: a field has a word, not the debug form of a type.
#[test]
fn no_debug_form_reaches_the_log() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        for call in text.split("tracing::").skip(1) {
            let is_event =
                ["info!(", "warn!(", "error!(", "debug!("].iter().any(|it| call.starts_with(it));
            let fields = call.split(");").next().unwrap_or_default();
            let has_form = |before: &str| {
                fields.match_indices(before).any(|(at, _)| {
                    let rest = fields[at + before.len()..].trim_start();
                    rest.starts_with('?')
                })
            };
            let is_debug = is_event && ["(", ", ", ",\n", "= "].iter().any(|it| has_form(it));
            assert!(!is_debug, "{path:?}: {}", fields.lines().next().unwrap_or_default());
        }
    }
}
