//! Work is taken while other programs write the same files.

use super::full_disk::Disk;
use super::{Place, path, write};
use crate::store::lock::try_exclusive;
use crate::work::save::Saver;
use crate::work::take::{Merged, WorkToTake};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A repository with a change of each kind in the clone of alice.
fn changes_of_each_kind() -> (Place, Saver) {
    let place = Place::new();
    let main = place.main();
    place.shell(
        &main,
        "mkdir -p old/inner turns/in; echo x >old/inner/x; echo y >old/y; echo z >turns/in/z; echo file >becomes; echo run >run.sh; \
         ln -s a.txt link; git add -A; git commit -qm more",
    );
    fs::set_permissions(main.join("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let odd = main.join(OsStr::from_bytes(b"odd\xff"));
    write(&odd, "odd\n");
    place.git(&main, "add .");
    place.git(&main, "commit -qm odd");
    let saver = place.clone_for("alice");
    place.shell(
        &path(&saver),
        "printf 'one\\n2\\nthree\\n' >a.txt; git rm -qr old turns; echo now >turns; rm becomes; mkdir becomes; echo in >becomes/in; \
         chmod +x run.sh; ln -sf run.sh link; mkdir -p new/er; echo new >new/er/file; echo ODD >odd*",
    );
    saver.save().unwrap();
    (place, saver)
}

/// Returns all files below a folder with their kinds, contents and targets, and `more` of find's words about each.
fn files_in(place: &Place, folder: &Path, more: &str) -> String {
    let all = "find . \\( -path ./.git -o -path ./.team \\) -prune -o";
    let about = format!("{all} -name '*' -printf '%P %y %l {more}\\n' | sort");
    let contents = format!("{all} -type f -print0 | sort -z | xargs -0 sha256sum");
    place.shell(folder, &format!("({about}; {contents}) | cat -v"))
}

/// Returns all files of the user, and what takes have left beside the clones.
fn files(place: &Place) -> String {
    let left = place.shell(&place.main(), "ls ../work | grep team-take || :");
    files_in(place, &place.main(), "%m") + &left
}

#[test]
fn files_links_permissions_and_folders_are_taken() {
    let (place, saver) = changes_of_each_kind();
    let main = place.main();
    let taken = place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap();
    assert!(matches!(taken, Merged::Clean { .. }), "{taken:?}");
    assert_eq!(files_in(&place, &main, ""), files_in(&place, &path(&saver), ""));
    assert!(!main.join("old").exists(), "an empty folder is left");
    assert_eq!(fs::read_link(main.join("link")).unwrap(), Path::new("run.sh"));
    let mode = |name: &str| fs::metadata(main.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a.txt"), mode("run.sh") & 0o111), (0o640, 0o111));
    assert_eq!(place.shell(&main, "cat odd*; ls ../work | grep team-take || :"), "ODD");
}

/// Git lets a filter write the new version of a file, after it has looked at the old one.
#[test]
fn a_write_while_the_new_versions_are_written_is_kept() {
    let (place, saver) = changes_of_each_kind();
    let main = place.main();
    let before = files(&place);
    let late = format!(
        "cat; test ! -e {0}/.git/late || {{ rm {0}/.git/late; echo mine >>{0}/a.txt; }}",
        main.display()
    );
    place.git(&main, &format!("config filter.late.smudge '{late}'"));
    place.shell(&main, "echo 'a.txt filter=late' >.git/info/attributes; touch .git/late");
    let why = place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap_err().to_string();
    assert!(why.contains("not committed: a.txt"), "{why}");
    assert!(!main.join(".git/late").exists(), "the filter has not run");
    assert_eq!(fs::read_to_string(main.join("a.txt")).unwrap(), "one\ntwo\nthree\nmine\n");
    write(&main.join("a.txt"), "one\ntwo\nthree\n");
    assert_eq!(files(&place), before, "another file was changed");
    place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap();
    assert_eq!(fs::read_to_string(main.join("a.txt")).unwrap(), "one\n2\nthree\n");
}

#[test]
fn a_file_that_a_program_has_open_for_writing_is_not_taken() {
    let (place, saver) = changes_of_each_kind();
    let before = files(&place);
    for name in ["a.txt", "old/y"] {
        let writer = File::options().append(true).open(place.main().join(name)).unwrap();
        let why = place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap_err().to_string();
        assert!(why.contains(&format!("another program writes {name}")), "{why}");
        drop(writer);
        assert_eq!(files(&place), before, "{name}");
    }
    place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap();
}

/// A take cannot exchange files across file systems in one step.
#[test]
fn files_on_another_file_system_are_taken_or_put_back() {
    let place = Place::new();
    let (main, sub) = (place.main(), place.main().join("sub"));
    fs::create_dir(&sub).unwrap();
    let Some(_disk) = Disk::on(&place, &sub) else { return };
    for name in ["changed", "removed", "z"] {
        write(&sub.join(name), "old\n");
    }
    symlink("changed", sub.join("link")).unwrap();
    place.shell(&main, "git add .; git commit -qm sub");
    let saver = place.clone_for("alice");
    place.shell(
        &path(&saver),
        "cd sub; echo new >changed; rm removed; echo new >created; ln -sf created link; echo new >z",
    );
    saver.save().unwrap();
    let before = files(&place);
    let writer = File::options().append(true).open(sub.join("z")).unwrap();
    let why = place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap_err().to_string();
    assert!(why.contains("another program writes sub/z"), "{why}");
    drop(writer);
    assert_eq!(files(&place), before);
    place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap();
    let now = place.shell(&sub, "ls -A | grep -v filler; cat changed created z; readlink link");
    assert_eq!(now, "changed\ncreated\nlink\nz\nnew\nnew\nnew\ncreated");
}

/// A sparse checkout leaves files out. One that is not there is not changed; a new one is made.
#[test]
fn work_on_files_that_the_user_has_not_checked_out_is_not_taken() {
    let place = Place::new();
    let main = place.main();
    place.shell(
        &main,
        "mkdir in out; echo in >in/f; echo out >out/f; git add in out; git commit -qm both",
    );
    let (alice, bob) = (place.clone_for("alice"), place.clone_for("bob"));
    place.shell(&main, "git sparse-checkout set in; test ! -e out/f");
    place.shell(&path(&alice), "echo new >out/f; echo new >in/f");
    place.shell(&path(&bob), "echo new >out/new; echo new >in/f");
    alice.save().unwrap();
    bob.save().unwrap();
    let before = files(&place);
    let take = |saver: &Saver| place.taker(saver).take(WorkToTake::OfferOrSaved);
    let why = take(&alice).unwrap_err().to_string();
    assert!(why.contains("not checked out: out/f") && why.contains("sparse-checkout"), "{why}");
    assert_eq!(files(&place), before);
    take(&bob).unwrap();
    assert_eq!(place.shell(&main, "cat out/new in/f; ls out"), "new\nnew\nnew");
}

#[test]
fn what_killed_takes_have_left_is_removed_unless_it_is_nowhere_else() {
    let (place, saver) = changes_of_each_kind();
    let clones = path(&saver).parent().unwrap().to_owned();
    let leave = |name: &str, text: &str| {
        fs::create_dir_all(clones.join(name).join("new/sub")).unwrap();
        write(&clones.join(name).join("index"), "of git");
        write(&clones.join(name).join("new/sub/a.txt"), text);
        symlink("a.txt", clones.join(name).join("new/link")).unwrap();
    };
    leave("alice.1.0.team-take", "one\ntwo\nthree\n");
    leave("alice.1.1.team-take", "of another program\n");
    leave("alice.1.2.team-take", "one\ntwo\nthree\n");
    let running = File::open(clones.join("alice.1.2.team-take")).unwrap();
    assert!(try_exclusive(&running).unwrap());
    place.taker(&saver).take(WorkToTake::OfferOrSaved).unwrap();
    let left = place.shell(&clones, "ls | grep team-take");
    assert_eq!(left, "alice.1.1.team-take\nalice.1.2.team-take");
}
