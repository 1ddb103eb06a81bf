//! `apply_patch` has the results of the reference tool, which `scripts/reference-patches` finds.

use crate::support::child_process::write;
use crate::support::harness::Team;
use crate::support::scripts::{calls, headless, says, script, tool_results};
use crate::support::skips::skipped;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The number of patches.
const PATCHES: usize = 200;

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn one_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Lines of which files consist; several are alike, so that a piece may have more than one place.
const LINES: [&str; 12] = [
    "fn main() {",
    "}",
    "",
    "    let a = 1;",
    "\tlet a = 1;",
    "    call(a)",
    "say “hi”",
    "say \"hi\"",
    "end  ",
    "end",
    "ünï — ok",
    "x",
];

fn lines(numbers: &mut Numbers, most: usize) -> Vec<String> {
    let count = numbers.below(most);
    (0..count).map(|_| numbers.pick(&LINES).to_owned()).collect()
}

/// A change of a line as a model may copy it, which the tool forgives or refuses.
fn copied(line: &str, numbers: &mut Numbers) -> String {
    match numbers.below(14) {
        0 => format!("{line} "),
        1 => line.trim().to_owned(),
        2 => line.replace(['“', '”'], "\"").replace('—', "-"),
        3 if numbers.one_in(4) => format!("{line}?"),
        _ => line.to_owned(),
    }
}

/// Returns the body of an update of these lines.
fn update(old: &[String], numbers: &mut Numbers) -> String {
    let mut body: Vec<String> = Vec::new();
    let mut at = 0;
    for piece in 0..=numbers.below(3) {
        if at > old.len() {
            break;
        }
        let begin = at + numbers.below(old.len() - at + 1);
        match numbers.below(3) {
            0 if begin > at && !old[at].trim().is_empty() => body.push(format!("@@ {}\n", old[at])),
            1 if piece == 0 => {}
            _ => body.push("@@\n".into()),
        }
        let (end, before) = (body.len(), begin);
        at = begin;
        for _ in 0..numbers.below(4) {
            let Some(line) = old.get(at) else { break };
            body.push(format!(" {}\n", copied(line, numbers)));
            at += 1;
        }
        for _ in 0..numbers.below(3) {
            let Some(line) = old.get(at) else { break };
            body.push(format!("-{}\n", copied(line, numbers)));
            at += 1;
        }
        for line in lines(numbers, 3) {
            body.push(format!("+{line}\n"));
        }
        for _ in 0..numbers.below(3) {
            let Some(line) = old.get(at) else { break };
            body.push(format!(" {}\n", copied(line, numbers)));
            at += 1;
        }
        if body.len() == end {
            body.push("+added\n".into());
        }
        if at == old.len() && before < at && numbers.one_in(3) {
            body.push("*** End of File\n".into());
        }
    }
    body.concat()
}

/// Makes the files of one patch in a folder, and returns the patch.
fn generated(folder: &Path, numbers: &mut Numbers) -> String {
    fs::create_dir_all(folder).unwrap();
    let mut patch = vec!["*** Begin Patch\n".to_owned()];
    for file in 0..=numbers.below(3) {
        let name = format!("f{file}");
        let old = lines(numbers, 12);
        let text = old.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
        let text = if numbers.one_in(4) { text.trim_end_matches('\n').to_owned() } else { text };
        match numbers.below(8) {
            0 => {
                let added = lines(numbers, 4)
                    .iter()
                    .map(|line| format!("+{line}\n"))
                    .collect::<Vec<_>>()
                    .concat();
                patch.push(format!("*** Add File: new/{name}\n{added}"));
                continue;
            }
            1 => patch.push(format!("*** Delete File: {name}\n")),
            2 => {
                let body = update(&old, numbers);
                patch.push(format!("*** Update File: {name}\n*** Move to: moved/{name}\n{body}"));
            }
            _ => {
                let body = update(&old, numbers);
                patch.push(format!("*** Update File: {name}\n{body}"));
            }
        }
        write(&folder.join(name), text);
    }
    patch.push("*** End Patch".into());
    patch.concat()
}

/// Returns the content of each file below a folder.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(
                tree(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)),
            );
        } else {
            found.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    found
}

#[test]
#[ignore = "long: scripts/reference-patches runs it"]
#[expect(clippy::disallowed_methods, reason = "the script names the tool and the seed")]
fn patches_have_the_results_of_the_reference_tool() {
    let Some(reference) = std::env::var_os("REFERENCE_PATCH_TOOL") else {
        skipped("apply_patch was not compared: scripts/reference-patches names the reference tool");
        return;
    };
    let seed: u64 = std::env::var("SEED").map_or(16, |seed| seed.parse().unwrap());
    let team = Team::new();
    let other = tempfile::tempdir().unwrap();
    let mut wanted = Vec::new();
    let mut made = Vec::new();
    for number in 0..PATCHES {
        let name = format!("p{number}");
        let state = seed.wrapping_mul(1000).wrapping_add(u64::try_from(number).unwrap());
        let patch = generated(&team.workspace().join(&name), &mut Numbers(state));
        let folder = other.path().join(&name);
        assert_eq!(generated(&folder, &mut Numbers(state)), patch);
        let mut command = Command::new(&reference);
        let ran = command.arg0("apply_patch").arg(&patch).current_dir(&folder).output().unwrap();
        let answer = String::from_utf8_lossy(&ran.stderr).into_owned();
        wanted.push((patch.clone(), ran.status.success().then(|| tree(&folder)), answer));
        // The paths of our tool begin in the workspace.
        let named = |line: &str| {
            let heads =
                ["*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "];
            let head = heads.into_iter().find(|head| line.starts_with(head));
            head.map_or(line.to_owned(), |head| format!("{head}{name}/{}", &line[head.len()..]))
        };
        let input = patch.lines().map(named).collect::<Vec<_>>().join("\n");
        made.push(("apply_patch", json!({ "input": input })));
    }
    let before: Vec<_> =
        (0..PATCHES).map(|number| tree(&team.workspace().join(format!("p{number}")))).collect();
    let model = script(&team, &[calls("lead", &made), says("lead", "done")]);
    headless(&team, &model, "patch").expect(0);
    let results = tool_results(&team, "lead");
    assert_eq!(results.len(), PATCHES);
    let mut applied = 0;
    for (number, ((patch, files, answer), (_, said, is_error))) in
        wanted.into_iter().zip(results).enumerate()
    {
        let before = &before[number];
        let about =
            format!("patch {number} of seed {seed}: {said} / {answer}\n{patch}\n{before:#?}");
        assert_eq!(!is_error, files.is_some(), "{about}");
        applied += usize::from(files.is_some());
        // The reference tool leaves a failed patch half done.
        let wanted = files.as_ref().unwrap_or(before);
        assert_eq!(&tree(&team.workspace().join(format!("p{number}"))), wanted, "{about}");
    }
    println!(
        "{PATCHES} patches of seed {seed}: {applied} applied alike, the others refused by both"
    );
    assert!(applied * 4 > PATCHES, "only {applied} patches were possible");
}
