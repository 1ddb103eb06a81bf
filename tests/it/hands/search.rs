//! `grep` and `list_files` find what ripgrep finds.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{calls, headless, says, script, tool_results};
use crate::support::skips::skipped;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of lines, and of files, that the tools show at once.
const PAGE_LINES: usize = 200;
const PAGE_FILES: usize = 500;

/// The number of characters that the tool shows of a line.
const LINE_CHARS: usize = 400;

/// The folder in the workspace that is searched.
const TREE: &str = "tree";

/// Returns ripgrep; `None` if it cannot be had here.
fn ripgrep() -> Option<PathBuf> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dev-tool");
    let ran = Command::new(tool).arg("rg").output().unwrap();
    if !ran.status.success() {
        skipped(&String::from_utf8_lossy(&ran.stderr));
        return None;
    }
    Some(String::from_utf8(ran.stdout).unwrap().trim().into())
}

fn put(tree: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(&path, content);
}

/// Makes a tree with each kind of file and rule that a search treats in its own way.
fn odd_files(tree: &Path) {
    fs::create_dir_all(tree.join(".git")).unwrap();
    put(tree, ".gitignore", "*.log\n!kept.log\n/top\nbuild/\n**/deep/*.tmp\n");
    put(tree, "sub/.gitignore", "local\n!*.tmp\n");
    put(tree, "sub/.ignore", "by_ignore\n");
    put(tree, ".rgignore", "by_rgignore\n");
    for path in [
        "a.log",
        "kept.log",
        "top",
        "sub/top",
        "build/out",
        "sub/build/out",
        "sub/deep/x.tmp",
        "deep/y.tmp",
        "local",
        "sub/local",
        "by_ignore",
        "sub/by_ignore",
        "by_rgignore",
        ".hidden",
        ".folder/file",
        "sub/plain",
        "ünï/cödé.txt",
        "with space",
        "-dash",
        "sub/deep/er/and/deeper/end",
    ] {
        put(tree, path, "needle one\nhay\n\nNEEDLE two needle\nend without break");
    }
    put(tree, "returns", "needle\r\nhay\r\nneedle again\r\n");
    put(tree, "latin", b"needle caf\xe9\nhay\n");
    put(tree, "binary", b"needle\0\nneedle\n");
    put(tree, "late_binary", ["needle\n".repeat(12_000).as_bytes(), b"\0needle\n"].concat());
    put(tree, "utf16", b"\xff\xfen\0e\0e\0d\0l\0e\0\n\0");
    put(tree, "bom", "\u{feff}needle\n");
    put(tree, "long", format!("{}needle{}\n", "x".repeat(3000), "y".repeat(3000)));
    put(tree, "empty", "");
    put(tree, "breaks", "\n\n\nneedle\n\n");
    std::os::unix::fs::symlink("sub", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("kept.log", tree.join("file_link")).unwrap();
}

/// Makes a tree of many files from a seed, with rules in many folders.
fn many_files(tree: &Path) {
    fs::create_dir_all(tree.join(".git")).unwrap();
    let mut state = 16_u64;
    let mut next = |most: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    let words = ["needle", "hay", "Needle", "fn main()", "", "ünï", "the end", "\tneedle(x)"];
    let rules =
        ["*.b", "d1/", "/d2", "!f1.b", "d3/**", "**/f7.*", "f[3-5].c", "#comment", "d0/d1", "\\!x"];
    for _ in 0..1500 {
        let depth = next(4);
        let folder = (0..depth).map(|_| format!("d{}/", next(5))).collect::<Vec<_>>().concat();
        let content = (0..next(8))
            .map(|_| format!("{}\n", words[next(words.len())]))
            .collect::<Vec<_>>()
            .concat();
        put(tree, &format!("{folder}f{}.{}", next(10), ["a", "b", "c"][next(3)]), content);
        if next(30) == 0 {
            let name = [".gitignore", ".ignore"][next(2)];
            let content = (0..=next(3))
                .map(|_| format!("{}\n", rules[next(rules.len())]))
                .collect::<Vec<_>>()
                .concat();
            put(tree, &format!("{folder}{name}"), content);
        }
    }
}

/// Copies the sources of this program.
fn sources(tree: &Path) {
    for folder in ["src", "docs", "tests", "scripts"] {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &tree.join(folder));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.unwrap().path(), to.to_owned());
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Runs ripgrep in the workspace.
fn run(rg: &Path, team: &Team, args: &[&str]) -> String {
    let mut command = Command::new(rg);
    let ran = command
        .args(args)
        .arg(TREE)
        .current_dir(team.workspace())
        .env_remove("RIPGREP_CONFIG_PATH")
        .output()
        .unwrap();
    assert!(ran.status.code() < Some(2), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Returns the lines that ripgrep finds, as the tool shows them: `path:number: text`.
fn expected_lines(output: &str) -> Vec<String> {
    let text = |value: &Value| match value["text"].as_str() {
        Some(text) => text.to_owned(),
        None => {
            String::from_utf8_lossy(&STANDARD.decode(value["bytes"].as_str().unwrap()).unwrap())
                .into_owned()
        }
    };
    let mut found = Vec::new();
    for line in output.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if event["type"] != "match" {
            continue;
        }
        let data = &event["data"];
        let (path, first) = (text(&data["path"]), data["line_number"].as_u64().unwrap());
        for (number, line) in (first..).zip(text(&data["lines"]).split_inclusive('\n')) {
            let line = line.trim_end_matches(['\n', '\r']);
            let line = match line.char_indices().nth(LINE_CHARS) {
                Some((at, _)) => {
                    format!("{} [… {} characters]", &line[..at], line[at..].chars().count())
                }
                None => line.to_owned(),
            };
            found.push(format!("{path}:{number}: {line}"));
        }
    }
    found
}

/// Returns the lines of the tool in the same form.
fn found_lines(pages: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for page in pages {
        let mut path = "";
        for line in page.lines() {
            let digits = line.chars().take_while(char::is_ascii_digit).count();
            if digits > 0 && line[digits..].starts_with(':') {
                found.push(format!("{path}:{line}"));
            } else {
                path = line;
            }
        }
    }
    found
}

/// A search, and the arguments of ripgrep for the same.
struct Case {
    tool: &'static str,
    input: Value,
    args: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let grep = |input: Value, args| Case { tool: "grep", input, args };
    let list = |input: Value, args| Case { tool: "list_files", input, args };
    vec![
        grep(json!({ "pattern": "needle" }), &["needle"]),
        grep(json!({ "pattern": "needle", "ignore_case": true }), &["-i", "needle"]),
        grep(json!({ "pattern": r"\bneedle\b.*\w$" }), &[r"\bneedle\b.*\w$"]),
        grep(
            json!({ "pattern": "^needle|[^ -~]", "all": true }),
            &["--hidden", "--no-ignore", "-g", "!.git", "^needle|[^ -~]"],
        ),
        grep(
            json!({ "pattern": "fn [a-z_]+_is_", "glob": "*.rs" }),
            &["-g", "*.rs", "fn [a-z_]+_is_"],
        ),
        grep(json!({ "pattern": "needle", "glob": "!sub/**" }), &["-g", "!sub/**", "needle"]),
        grep(
            json!({ "pattern": "needle.{0,3}\n(hay|end)", "multiline": true }),
            &["-U", "--multiline-dotall", "needle.{0,3}\n(hay|end)"],
        ),
        list(json!({}), &["--files"]),
        list(json!({ "all": true }), &["--files", "--hidden", "--no-ignore", "-g", "!.git"]),
        list(json!({ "glob": "*.{a,rs,tmp}" }), &["--files", "-g", "*.{a,rs,tmp}"]),
        list(json!({ "glob": "**/d[12]/*" }), &["--files", "-g", "**/d[12]/*"]),
    ]
}

/// The name of a tree, and the function that makes it.
type Tree = (&'static str, fn(&Path));

#[test]
fn searches_find_what_ripgrep_finds() {
    let Some(rg) = ripgrep() else { return };
    let trees: [Tree; 3] = [("odd", odd_files), ("many", many_files), ("sources", sources)];
    for (name, make) in trees {
        let team = Team::new();
        make(&team.workspace().join(TREE));
        let mut wanted = Vec::new();
        let mut searches = Vec::new();
        for Case { tool, mut input, args } in cases() {
            let is_grep = tool == "grep";
            let args = [
                if is_grep { &["--json", "--sort", "path"][..] } else { &["--sort", "path"] },
                args,
            ]
            .concat();
            let output = run(&rg, &team, &args);
            let mut lines = if is_grep {
                expected_lines(&output)
            } else {
                output.lines().map(ToOwned::to_owned).collect()
            };
            // A glob of ripgrep brings in ignored files, too; one of the tool does not.
            let is_selective = args.iter().any(|arg| arg.starts_with('*'));
            if is_selective {
                let seen: BTreeSet<String> =
                    run(&rg, &team, &["--files"]).lines().map(ToOwned::to_owned).collect();
                let path = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
                lines.retain(|line| seen.contains(&path(line)));
            }
            // A file name sorts by bytes here, folder by folder there.
            lines.sort();
            let page = if is_grep { PAGE_LINES } else { PAGE_FILES };
            let pages = lines.len().div_ceil(page).max(1);
            input["path"] = json!(TREE);
            for number in 0..pages {
                input["offset"] = json!(number * page + 1);
                searches.push((tool, input.clone()));
            }
            wanted.push((is_grep, args, lines, pages));
        }
        let model = script(&team, &[calls("lead", &searches), says("lead", "done")]);
        headless(&team, &model, "search").expect(0);
        let mut results = tool_results(&team, "lead").into_iter().map(|(_, content, _)| content);
        for (is_grep, args, lines, pages) in wanted {
            let pages: Vec<String> = results.by_ref().take(pages).collect();
            let mut found = if is_grep { found_lines(&pages) } else { listed(&pages) };
            found.sort();
            assert!(found == lines, "{name} {args:?}\n{:#?}", difference(&found, &lines));
        }
    }
}

/// Returns the paths of pages of `list_files`.
fn listed(pages: &[String]) -> Vec<String> {
    let lines = pages.iter().flat_map(|page| page.lines());
    lines.filter(|line| line.starts_with(TREE)).map(ToOwned::to_owned).collect()
}

fn difference<'a>(found: &'a [String], wanted: &'a [String]) -> Vec<(&'static str, &'a String)> {
    let more = found.iter().filter(|line| !wanted.contains(line)).map(|line| ("not in rg", line));
    let less = wanted.iter().filter(|line| !found.contains(line)).map(|line| ("only in rg", line));
    more.chain(less).take(20).collect()
}
