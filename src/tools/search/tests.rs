//! Tests of the search tools in a real folder.

use crate::tools::{Call, Registry, file_tools};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

struct Fixture {
    folder: tempfile::TempDir,
    tools: Registry,
}

impl Fixture {
    /// Makes a workspace with these files, of which each is a path and its content.
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            put(folder.path(), path, content);
        }
        let tools = file_tools(folder.path());
        Self { folder, tools }
    }

    fn call(&self, name: &str, input: Value) -> Result<String, String> {
        let call = Call { id: "1".into(), name: name.into(), input };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let done = runtime.block_on(self.tools.call(&call));
        done.map(|output| output.text).map_err(|why| why.to_string())
    }

    fn grep(&self, input: Value) -> String {
        self.call("grep", input).unwrap()
    }

    fn list(&self, input: Value) -> String {
        self.call("list_files", input).unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "a person makes the files")]
fn put(folder: &Path, path: &str, content: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

const FILES: [(&str, &str); 8] = [
    ("src/main.rs", "fn main() {\n    greet();\n}\n"),
    ("src/greet.rs", "// Greets.\npub fn greet() {\n    println!(\"hi\");\n}\n\nfn Greet2() {}\n"),
    ("README.md", "greet is a program\n"),
    (".hidden/greet.txt", "greet, hidden\n"),
    ("target/out.txt", "greet, ignored\n"),
    (".ignore", "target\n"),
    ("binary.dat", "greet\0\n"),
    ("empty", ""),
];

#[test]
fn lines_are_shown_below_their_file_in_the_order_of_paths() {
    let fixture = Fixture::new(&FILES);
    let found = fixture.grep(json!({ "pattern": "greet\\b" }));
    let wanted = "README.md\n1: greet is a program\nsrc/greet.rs\n2: pub fn greet() {\nsrc/main.rs\n2:     greet();";
    assert_eq!(found, wanted);
    let found = fixture.grep(
        json!({ "pattern": "^(//|fn) greet", "ignore_case": true, "glob": "*.rs", "context": 1 }),
    );
    let wanted = "src/greet.rs\n1: // Greets.\n2- pub fn greet() {\n--\n5- \n6: fn Greet2() {}";
    assert_eq!(found, wanted);
    let found = fixture.grep(json!({ "pattern": "greet", "output": "files", "all": true }));
    assert_eq!(found, ".hidden/greet.txt\nREADME.md\nsrc/greet.rs\nsrc/main.rs\ntarget/out.txt");
    let found = fixture.grep(json!({ "pattern": "[Gg]reet", "output": "counts", "path": "src" }));
    assert_eq!(found, "src/greet.rs: 3\nsrc/main.rs: 1");
    let found =
        fixture.grep(json!({ "pattern": "\\{\n +p", "multiline": true, "path": "./src/greet.rs" }));
    assert_eq!(found, "src/greet.rs\n2: pub fn greet() {\n3:     println!(\"hi\");");
    assert_eq!(fixture.grep(json!({ "pattern": "nowhere" })), "nothing matches");
}

#[test]
fn files_are_listed_by_path_folder_and_glob() {
    let fixture = Fixture::new(&FILES);
    assert_eq!(fixture.list(json!({})), "README.md\nbinary.dat\nempty\nsrc/greet.rs\nsrc/main.rs");
    assert_eq!(fixture.list(json!({ "depth": 1 })), "README.md\nbinary.dat\nempty\nsrc/");
    assert_eq!(fixture.list(json!({ "glob": "*.rs", "path": "src" })), "src/greet.rs\nsrc/main.rs");
    assert_eq!(
        fixture.list(json!({ "glob": "!*.rs", "all": true })),
        ".hidden/greet.txt\n.ignore\nREADME.md\nbinary.dat\nempty\ntarget/out.txt"
    );
    let none = "no file matches; `all` also shows hidden and ignored ones";
    assert_eq!(fixture.list(json!({ "glob": "*.py" })), none);
}

#[test]
fn results_come_in_pages() {
    let lines = (1..=450).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
    let fixture = Fixture::new(&[("a", &lines), ("b", "line of b\n")]);
    let first = fixture.grep(json!({ "pattern": "line" }));
    assert!(
        first.contains("\n200: line 200\n[lines 1 to 200 of 451; offset 201 shows more]"),
        "{first}"
    );
    assert!(!first.contains("201: "));
    let last = fixture.grep(json!({ "pattern": "line", "offset": 450 }));
    assert_eq!(last, "a\n450: line 450\nb\n1: line of b\n[lines 450 to 451 of 451]");
    let beyond = fixture.grep(json!({ "pattern": "line", "offset": 452 }));
    assert_eq!(beyond, "[there are 451 lines; give a smaller offset]");
    let long = "x".repeat(1_000_000);
    put(fixture.folder.path(), "long", &long);
    let found = fixture.grep(json!({ "pattern": "xxx" }));
    assert!(found.len() < 500 && found.ends_with("[… 999600 characters]"), "{found}");
}

#[test]
fn a_wrong_call_says_what_to_do() {
    let fixture = Fixture::new(&FILES);
    symlink("/etc", fixture.folder.path().join("out")).unwrap();
    for (tool, input, says) in [
        ("grep", json!({ "pattern": "f(" }), "unclosed group"),
        ("grep", json!({ "pattern": "a\nb" }), "`multiline` permits a line break"),
        (
            "grep",
            json!({ "pattern": "a", "path": "nowhere" }),
            "nowhere does not exist; list_files shows",
        ),
        (
            "grep",
            json!({ "pattern": "a", "path": "/etc" }),
            "leads out of the folder; a search stays in the workspace",
        ),
        ("grep", json!({ "pattern": "a", "path": "out" }), "leads out of the folder"),
        ("grep", json!({ "pattern": "a", "path": "../x" }), "leads out of the folder"),
        ("grep", json!({ "pattern": "a", "output": "json" }), "give lines, files or counts"),
        ("grep", json!({ "pattern": "a", "glob": "[" }), "the glob cannot be understood"),
        ("list_files", json!({ "path": "out" }), "leads out of the folder"),
        ("list_files", json!({ "glob": "{a" }), "an example is *.rs"),
    ] {
        let why = fixture.call(tool, input.clone()).unwrap_err();
        assert!(why.contains(says), "{tool} {input}: {why}");
    }
    // Links are not followed, as ripgrep does not.
    assert!(!fixture.list(json!({})).contains("out/"));
}

#[test]
fn what_the_agent_may_not_read_is_not_searched() {
    let files = ["a", ".team/inbox/bob", "secret/key", "secret/deep/key", "sub/secret/key"];
    let fixture = Fixture::new(&files.map(|path| (path, "needle\n")));
    let found = fixture.grep(json!({ "pattern": "needle", "all": true, "output": "files" }));
    assert_eq!(found, "a\nsub/secret/key");
    assert_eq!(fixture.list(json!({ "all": true })), "a\nsub/secret/key");
    for path in ["secret", "secret/key", ".team"] {
        let found = fixture.grep(json!({ "pattern": "needle", "path": path, "all": true }));
        assert_eq!(found, "nothing matches", "{path}");
    }
}

#[test]
fn a_glob_brings_in_no_hidden_or_ignored_file() {
    let fixture = Fixture::new(&FILES);
    let input = json!({ "pattern": "greet", "glob": "*.txt" });
    assert_eq!(fixture.grep(input), "nothing matches");
    let listed = fixture.list(json!({ "glob": "*.txt", "all": true }));
    assert_eq!(listed, ".hidden/greet.txt\ntarget/out.txt");
    assert_eq!(fixture.list(json!({ "glob": "src/*.rs" })), "src/greet.rs\nsrc/main.rs");
}

#[test]
fn a_pipe_or_a_device_in_the_place_of_rules_stops_no_search() {
    let fixture = Fixture::new(&[("sub/a", "needle\n"), ("b", "needle\n")]);
    let pipe = fixture.folder.path().join("sub/.ignore");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let input = json!({ "pattern": "needle" });
    let note = "[not searched: sub: a .gitignore, .ignore or .rgignore there is no regular file, or longer than 1 MiB; \
                `all` searches there]";
    assert_eq!(fixture.grep(input.clone()), format!("b\n1: needle\n{note}"));
    assert_eq!(fixture.list(json!({})), format!("b\n{note}"));
    symlink("/dev/zero", fixture.folder.path().join(".gitignore")).unwrap();
    let why = fixture.call("grep", input).unwrap_err();
    assert!(why.contains("is no regular file"), "{why}");
    let all = fixture.grep(json!({ "pattern": "needle", "all": true, "path": "sub" }));
    assert_eq!(all, "sub/a\n1: needle");
}

#[test]
fn a_page_has_a_bounded_size_within_one_file_too() {
    let line = format!("needle {}\n", "x".repeat(390));
    let fixture = Fixture::new(&[("a", &line.repeat(200))]);
    let first = fixture.grep(json!({ "pattern": "needle", "context": 5 }));
    assert!(first.len() <= 50_200, "{} bytes", first.len());
    let note = first.lines().last().unwrap();
    let shown = first.lines().filter(|line| line.contains(": needle")).count();
    let expected = format!("[lines 1 to {shown} of 200; offset {} shows more]", shown + 1);
    assert_eq!(note, expected);
    let next = fixture.grep(json!({ "pattern": "needle", "offset": shown + 1 }));
    assert!(next.starts_with(&format!("a\n{}: needle", shown + 1)), "{}", &next[..40]);
}

#[test]
fn a_match_over_endless_lines_is_cut() {
    let fixture = Fixture::new(&[("a", &"\n".repeat(200_000))]);
    let found = fixture.grep(json!({ "pattern": "\\n+", "multiline": true }));
    assert!(found.contains("of more than"), "{found:.80}");
}

#[test]
fn a_file_that_is_not_searched_to_its_end_is_named() {
    let long = "x".repeat(17 << 20);
    let fixture =
        Fixture::new(&[("a", "needle\n"), ("b", &long), ("c", &format!("needle\n{long}"))]);
    let found = fixture.grep(json!({ "pattern": "needle", "output": "files" }));
    let why = "a line of more than 16 MiB, or it could not be read]";
    assert_eq!(found, format!("a\nc\n[not searched to the end: b: {why}"));
    let found = fixture.grep(json!({ "pattern": "needle$", "multiline": true, "output": "files" }));
    let why = "a file of more than 16 MiB with `multiline`, or it could not be read]";
    assert_eq!(found, format!("a\n[not searched to the end: b, c: {why}"));
}
