//! A disk without room, for real: under the clones, under the objects of the user's repository, and under its files.

use super::*;
use crate::os::skips::skipped;

/// A small file system on a folder, unmounted on drop.
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts the file system, with what is in the folder. Returns `None`, with a notice, if this user may not mount.
    pub(super) fn on(place: &Place, folder: &Path) -> Option<Self> {
        fs::create_dir_all(folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]);
        let kept = place.folder.path().join("kept");
        place.shell(folder, &format!("cp -a . {}", kept.display()));
        if !mount.arg(folder).output().is_ok_and(|output| output.status.success()) {
            skipped("a small disk cannot be mounted here (needs root)");
            return None;
        }
        let disk = Self(folder.to_owned());
        place.shell(&kept, &format!("cp -a . {}", folder.display()));
        Some(disk)
    }

    fn filler(&self) -> PathBuf {
        self.0.join(".filler")
    }

    /// Uses all room but this many bytes.
    fn fill_but(&self, room: u64) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        file.set_len(file.metadata().unwrap().len() - room).unwrap();
    }

    fn fill(&self) {
        self.fill_but(0);
    }

    fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazy unmount (`-l`), because a failing test may leave a process in the file system.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Whether git says that there is no room.
fn is_full(why: &str) -> bool {
    ["No space left", "Out of diskspace", "unable to write"].iter().any(|words| why.contains(words))
}

#[test]
fn a_clone_without_room_is_not_made_and_its_work_stays_until_it_can_be_saved() {
    let place = Place::new();
    let clones = place.order("alice").clones;
    let Some(disk) = Disk::on(&place, &clones) else { return };
    let user = place.state_of_user();
    disk.fill();
    let why = create(&place.order("alice")).unwrap_err().to_string();
    assert!(is_full(&why), "{why}");
    assert_eq!(fs::read_dir(&clones).unwrap().count(), 1, "the filler is alone: {why}");
    assert_eq!(place.state_of_user(), user);
    disk.empty();
    let saver = place.clone_for("alice");
    write(&path(&saver).join("new.txt"), "new\n");
    disk.fill();
    let why = saver.save().unwrap_err().to_string();
    assert!(is_full(&why), "{why}");
    assert!(drop_clone(&saver).is_err());
    assert_eq!(fs::read_to_string(path(&saver).join("new.txt")).unwrap(), "new\n");
    disk.empty();
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "new.txt"), "new");
    assert_eq!(place.state_of_user(), user);
}

#[test]
fn work_that_does_not_fit_into_the_repository_stays_in_the_clone() {
    let place = Place::new();
    let saver = place.clone_for("alice");
    write(&path(&saver).join("old.txt"), "old\n");
    let first = saver.save().unwrap().wip;
    let Some(disk) = Disk::on(&place, &place.main().join(".git/objects")) else { return };
    let user = place.state_of_user();
    disk.fill();
    write(&path(&saver).join("new.txt"), "new\n");
    let why = saver.save().unwrap_err().to_string();
    assert!(is_full(&why), "{why}");
    assert!(drop_clone(&saver).is_err());
    let wip = place.git(&place.main(), "rev-parse refs/team/alice/wip");
    assert_eq!(Some(wip), first);
    disk.empty();
    let wip = saver.save().unwrap().wip.unwrap();
    assert_eq!(content(&place, &wip, "new.txt"), "new");
    assert_eq!(place.state_of_user(), user);
    place.git(&place.main(), "fsck --connectivity-only --no-dangling");
}

/// Files that fit are not taken without those that do not, and those that git has removed come back.
#[test]
fn work_that_does_not_fit_into_the_workspace_is_not_taken_in_part() {
    let place = Place::new();
    let Some(disk) = Disk::on(&place, &place.main()) else { return };
    let (small, large) = ("old\n", "new\n".repeat(100_000));
    let names = ["known.txt", "sub/known.txt"];
    place.shell(&place.main(), "mkdir sub");
    for name in names {
        write(&place.main().join(name), small);
    }
    place.shell(&place.main(), "echo .filler >>.git/info/exclude; git add .; git commit -qm known");
    let saver = place.clone_for("alice");
    write(&path(&saver).join("a.txt"), "one\nTWO\nthree\n");
    for name in names {
        write(&path(&saver).join(name), &large);
    }
    write(&path(&saver).join("sub/new.txt"), "new\n");
    saver.save().unwrap();
    let user = place.state_of_user();
    // There is room for the merge.
    disk.fill_but(300_000);
    let taker = place.taker(&saver);
    let why = taker.take(WorkToTake::OfferOrSaved).map(drop).unwrap_err().to_string();
    assert!(is_full(&why), "{why}");
    let read = |name: &str| fs::read_to_string(place.main().join(name)).unwrap_or_default();
    let files = ["a.txt", names[0], names[1], "sub/new.txt"].map(read);
    assert_eq!(files, ["one\ntwo\nthree\n", small, small, ""], "{why}");
    disk.empty();
    // The files themselves are new ones.
    assert_eq!(place.state_of_user()[..3], user[..3]);
    let taken = taker.take(WorkToTake::OfferOrSaved).unwrap();
    assert!(matches!(taken, Merged::Clean { .. }), "{taken:?}");
    let files = ["a.txt", names[0], names[1], "sub/new.txt"].map(read);
    assert_eq!(files, ["one\nTWO\nthree\n", &large, &large, "new\n"]);
    assert_eq!(place.shell(&place.main(), "ls ../work | grep team-take || :"), "");
}
