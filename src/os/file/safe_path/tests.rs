//! Tests of paths and replacements in a real folder.

use super::*;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::Uid;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::{TempDir, tempdir};

fn root() -> (TempDir, SafeRoot) {
    let folder = tempdir().unwrap();
    let root = SafeRoot::open(folder.path()).unwrap();
    (folder, root)
}

fn read(root: &SafeRoot, path: &str) -> Result<Option<String>, SafePathError> {
    let file = root.find(path.as_ref())?.open()?;
    Ok(file.map(io::read_to_string).transpose()?)
}

fn write(root: &SafeRoot, path: &str, text: &str) -> Result<(), SafePathError> {
    replace(&root.find(path.as_ref())?, text)
}

/// Replaces a file as it is now.
fn replace(spot: &SafePath, text: &str) -> Result<(), SafePathError> {
    let old = spot.open()?.map(io::read_to_string).transpose()?;
    let draft = spot.draft(OsStr::new(".draft"), text.as_bytes())?;
    let placed = draft.place(old.as_deref().map(str::as_bytes))?;
    assert!(matches!(placed, Placement::Placed), "{placed:?}");
    Ok(())
}

#[test]
fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
    let (folder, root) = root();
    assert_eq!(read(&root, "a/b/script").unwrap(), None);
    write(&root, "a/b/script", "one").unwrap();
    let script = folder.path().join("a/b/script");
    fs::set_permissions(&script, Permissions::from_mode(0o751)).unwrap();
    symlink("a/b/script", folder.path().join("link")).unwrap();
    fs::hard_link(&script, folder.path().join("hard_link")).unwrap();
    let reader = File::open(&script).unwrap();
    write(&root, "link", "two").unwrap();

    assert_eq!(io::read_to_string(reader).unwrap(), "one");
    assert_eq!(read(&root, "hard_link").unwrap().unwrap(), "one", "it is cut");
    assert_eq!(read(&root, "a/b/script").unwrap().unwrap(), "two");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(folder.path().join("link").is_symlink());
    assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
}

#[test]
fn without_a_folder_to_stay_in_no_link_is_followed() {
    let (_folder, root) = root();
    let real = root.path();
    fs::create_dir(real.join("sub")).unwrap();
    symlink("sub", real.join("link")).unwrap();
    symlink("sub/a", real.join("last")).unwrap();
    replace(&anywhere(&real.join("sub/a")).unwrap(), "one").unwrap();
    let spot = anywhere(&real.join("sub/../sub/a")).unwrap();
    assert_eq!(spot.path(), real.join("sub/a"));
    assert_eq!(io::read_to_string(spot.open().unwrap().unwrap()).unwrap(), "one");
    for path in ["link/a", "last", "link/../sub/a", "link/new"] {
        let found = anywhere(&real.join(path));
        assert!(matches!(found, Err(SafePathError::Link)), "{path}: {found:?}");
    }
}

#[test]
fn a_file_that_is_not_regular_is_refused_without_waiting() {
    let (folder, root) = root();
    nix::unistd::mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let devices = SafeRoot::open(Path::new("/dev")).unwrap();
    for (root, path, says) in [
        (&root, "pipe", "a named pipe"),
        (&root, "socket", "a socket"),
        (&root, "folder", "a folder"),
        (&devices, "zero", "a device"),
        (&devices, "null", "a device"),
    ] {
        for refused in [read(root, path).map(drop), write(root, path, "x")] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains(says), "{path}: {why}");
        }
    }
}

#[test]
fn a_read_only_file_is_not_changed() {
    let (folder, root) = root();
    write(&root, "file", "old").unwrap();
    fs::set_permissions(folder.path().join("file"), Permissions::from_mode(0o444)).unwrap();
    // Root may write everything.
    if !Uid::effective().is_root() {
        assert!(write(&root, "file", "new").is_err());
        assert_eq!(read(&root, "file").unwrap().unwrap(), "old");
    }
}

/// A thread swaps a folder for a link to the outside and back while files are read and written through
/// its name. A check before the open would be led outside.
#[test]
fn a_folder_swapped_for_a_link_is_not_followed() {
    let ((folder, root), (outside, outside_root)) = (root(), root());
    let [door, trap] = ["door", "trap"].map(|name| folder.path().join(name));
    fs::create_dir(&door).unwrap();
    symlink(outside.path(), &trap).unwrap();
    write(&outside_root, "file", "secret").unwrap();
    write(&root, "door/file", "ours").unwrap();

    let done = AtomicBool::new(false);
    let tries: Vec<_> = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let exchange = RenameFlags::RENAME_EXCHANGE;
                renameat2(AT_FDCWD, &door, AT_FDCWD, &trap, exchange).unwrap();
            }
        });
        let both = |_| (read(&root, "door/file"), write(&root, "door/file", "ours"));
        let tries = (0..2000).map(both).collect();
        done.store(true, Ordering::Relaxed);
        tries
    });
    let mut led_away = 0;
    for (read, written) in tries {
        match read {
            Ok(text) => assert_eq!(text.as_deref(), Some("ours")),
            Err(SafePathError::Outside) => led_away += 1,
            Err(why) => panic!("{why}"),
        }
        assert!(matches!(written, Ok(()) | Err(SafePathError::Outside)), "{written:?}");
    }
    assert!(led_away > 0, "the swapper never won, so nothing was tried");
    assert_eq!(read(&outside_root, "file").unwrap().unwrap(), "secret");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_not_the_expected_one_is_left_as_it_is() {
    let (folder, root) = root();
    let spot = root.find("file".as_ref()).unwrap();
    let names = || fs::read_dir(folder.path()).unwrap().count();
    let place = |expected: Option<&str>, meanwhile: &dyn Fn()| {
        let draft = spot.draft(OsStr::new(".draft"), b"ours").unwrap();
        meanwhile();
        draft.place(expected.map(str::as_bytes)).unwrap()
    };
    let put = |text: &str| {
        let mut file = File::create(folder.path().join("file")).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    assert!(matches!(place(None, &|| put("foreign")), Placement::Changed));
    assert_eq!((read(&root, "file").unwrap().as_deref(), names()), (Some("foreign"), 1));
    for foreign in ["", "foreign!", "foreigner"] {
        put("foreign");
        assert!(matches!(place(Some("foreign"), &|| put(foreign)), Placement::Changed));
        assert_eq!((read(&root, "file").unwrap().as_deref(), names()), (Some(foreign), 1));
    }
    put("foreign");
    let writer = File::options().append(true).open(folder.path().join("file")).unwrap();
    assert!(matches!(place(Some("foreign"), &|| {}), Placement::Busy));
    drop(writer);
    let remove = || fs::remove_file(folder.path().join("file")).unwrap();
    assert!(matches!(place(Some("foreign"), &remove), Placement::Changed));
    assert_eq!((read(&root, "file").unwrap(), names()), (None, 0));
    put("foreign");
    let other_folder = || {
        remove();
        fs::create_dir(folder.path().join("file")).unwrap();
    };
    assert!(matches!(place(Some("foreign"), &other_folder), Placement::Changed));
    assert!(folder.path().join("file").is_dir() && names() == 1);
}

/// Two writers derive versions from each other's, and only one of them compares. No version of the other one is lost.
#[test]
fn a_version_of_another_writer_is_never_lost() {
    let (folder, root) = root();
    write(&root, "file", "").unwrap();
    let path = folder.path().join("file");
    let done = AtomicBool::new(false);
    let kept = std::thread::scope(|threads| {
        let foreign = threads.spawn(|| {
            for number in 0..2000 {
                let text = fs::read_to_string(&path).unwrap();
                let next = folder.path().join("next");
                let mut file = File::create(&next).unwrap();
                io::Write::write_all(&mut file, format!("{text}{number}\n").as_bytes()).unwrap();
                fs::rename(next, &path).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let spot = root.find("file".as_ref()).unwrap();
        let mut kept = String::new();
        let mut placed = 0;
        while !done.load(Ordering::Relaxed) || placed == 0 {
            let text = io::read_to_string(spot.open().unwrap().unwrap()).unwrap();
            // Only the lines of the other writer are repeated, so that the text stays short.
            let lines = text.lines().filter(|line| *line != "ours");
            let next = lines.chain(["ours", ""]).collect::<Vec<_>>().join("\n");
            let draft = spot.draft(OsStr::new(".draft"), next.as_bytes()).unwrap();
            match draft.place(Some(text.as_bytes())).unwrap() {
                Placement::Placed => placed += 1,
                Placement::Changed | Placement::Busy => {}
                Placement::Restored { version, displaced } => {
                    kept += &String::from_utf8(version).unwrap();
                    if let Some(displaced) = displaced {
                        kept += &String::from_utf8(displaced.read().unwrap()).unwrap();
                        displaced.remove().unwrap();
                    }
                }
            }
        }
        foreign.join().unwrap();
        kept
    });
    let text = kept + &read(&root, "file").unwrap().unwrap();
    let present: std::collections::BTreeSet<&str> = text.lines().collect();
    let lost: Vec<u32> =
        (0..2000).filter(|it| !present.contains(it.to_string().as_str())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn only_the_expected_version_of_a_file_is_removed() {
    let (folder, root) = root();
    let aside = OsStr::new(".aside");
    let remove = |path: &str, expected: &str| {
        root.find(path.as_ref()).unwrap().remove_exactly(aside, expected.as_bytes())
    };
    write(&root, "a", "one").unwrap();
    assert!(matches!(remove("a", "two"), Ok(Placement::Changed)));
    let writer = File::options().append(true).open(folder.path().join("a")).unwrap();
    assert!(matches!(remove("a", "one"), Ok(Placement::Busy)));
    drop(writer);
    assert_eq!(read(&root, "a").unwrap().unwrap(), "one");
    assert!(matches!(remove("a", "one"), Ok(Placement::Placed)));
    assert_eq!(read(&root, "a").unwrap(), None);
    for missing in ["a", "none/a"] {
        assert!(matches!(remove(missing, "one"), Ok(Placement::Changed)), "{missing}");
    }
    let spot = root.find("a".as_ref()).unwrap();
    symlink("target", folder.path().join("a")).unwrap();
    assert!(matches!(spot.remove_exactly(aside, b"one"), Ok(Placement::Changed)));
    assert!(folder.path().join("a").is_symlink());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left aside");
}
