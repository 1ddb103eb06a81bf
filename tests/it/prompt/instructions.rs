//! `AGENTS.md` and `CLAUDE.md`: their imports.

use super::{logged, put};
use crate::support::fake::Reply;
use crate::support::fake_models::{headless, team_with_fake};
use std::os::unix::fs::symlink;

/// A line with a path is replaced by the file, and what cannot be read is named in the log and by `team doctor`.
#[test]
fn instructions_import_files_of_the_workspace() {
    let (team, fake) = team_with_fake(|_| Reply::text("Done."));
    let outside = tempfile::tempdir().unwrap();
    crate::support::child_process::write(&outside.path().join("out.md"), "the secret");
    let agents = "Say please.\n@docs/style.md\n@out.md\n@keys/key.md\n@.team/roles/x.md\n";
    put(
        &team,
        &[
            ("AGENTS.md", agents),
            ("CLAUDE.md", "@AGENTS.md\n"),
            ("docs/style.md", "Use tabs.\n@more.md\n"),
            ("docs/more.md", "No trailing spaces.\n@../AGENTS.md\n"),
            ("keys/key.md", "the key"),
            (".team/roles/x.md", "the role"),
            (".team/settings.toml", "[permissions]\ndeny = [\"read_file(keys/**)\"]\n"),
        ],
    );
    symlink(outside.path().join("out.md"), team.workspace().join("out.md")).unwrap();
    headless(&team, "begin", &[]).expect(0);
    let system = fake.requests()[0].system();
    let expected = "\nInstructions of this workspace:\n[AGENTS.md]\nSay please.\n[docs/style.md]\nUse tabs.\n\
                    [docs/more.md]\nNo trailing spaces.\n@out.md\n@keys/key.md\n@.team/roles/x.md\n";
    assert!(system.ends_with(expected), "{system}");
    let problems = logged(&team, "problem");
    let doctor = team.team(&["doctor"]).out;
    for words in ["imports out.md, which leads out", ".team/roles/x.md, which is in a folder"] {
        assert!(problems.iter().any(|problem| problem.contains(words)), "{words}: {problems:?}");
        assert!(doctor.contains(words), "{words}: {doctor}");
    }
    assert!(problems.iter().any(|it| it.contains("keys/key.md, which may not be read")));
}
