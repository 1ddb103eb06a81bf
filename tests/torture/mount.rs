//! File systems that are mounted while a figure needs them.

use nix::errno::Errno;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A mounted file system, unmounted on drop.
pub(crate) struct Mounted {
    pub(crate) at: PathBuf,
}

impl Mounted {
    /// Mounts an image on a new folder.
    pub(crate) fn image(image: &Path, at: &Path, options: &str) -> Result<Self, String> {
        std::fs::create_dir_all(at).unwrap();
        Self::by(Command::new("mount").args(["-o", options]).args([image, at]), at)
    }

    /// Mounts with this command.
    pub(crate) fn by(mount: &mut Command, at: &Path) -> Result<Self, String> {
        run(mount)?;
        Ok(Self { at: at.into() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = (0..100).any(|_| {
            let is_done = run(Command::new("umount").arg(&self.at)).is_ok();
            if !is_done {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            is_done
        });
        assert!(unmounted || std::thread::panicking(), "{} stays mounted", self.at.display());
    }
}

/// Runs a command. Its error output goes to stderr and not into the error, because it contains paths.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Ok(output) = command.output() else { return Err(format!("{name} cannot be run here")) };
    if output.status.success() {
        Ok(())
    } else {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        Err(format!("{name} is refused here"))
    }
}

/// Writes to a file until its file system has no room for one byte more.
pub(crate) fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut block = vec![0; 65_536];
    while !block.is_empty() {
        match file.write_all(&block) {
            Ok(()) => {}
            Err(why) => {
                assert_eq!(why.raw_os_error(), Some(Errno::ENOSPC as i32), "{why}");
                block.truncate(block.len() / 2);
            }
        }
    }
}
