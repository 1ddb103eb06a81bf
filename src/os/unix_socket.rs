//! Sockets in the file system, at paths of any length: a socket's address has room for 107 bytes, so it is named through
//! the descriptor of its folder.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Creates a socket that the user alone may connect to. Replaces what is there.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Err(why) = fs::remove_file(path)
        && why.kind() != io::ErrorKind::NotFound
    {
        return Err(why);
    }
    let (folder, name) = open_folder(path)?;
    let listener = UnixListener::bind(short(&folder, name))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to a socket. Fails if no process listens there.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let (folder, name) = open_folder(path)?;
    UnixStream::connect(short(&folder, name))
}

fn open_folder(path: &Path) -> io::Result<(File, &OsStr)> {
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((File::open(folder)?, name))
}

fn short(folder: &File, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_socket_has_a_path_of_any_length_and_replaces_an_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(200));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("s");
        assert!(connect(&path).is_err());
        drop(bind(&path).unwrap());
        assert!(connect(&path).is_err(), "nobody listens");
        let listener = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        connect(&path).unwrap().write_all(b"hello").unwrap();
        let mut told = String::new();
        listener.accept().unwrap().0.read_to_string(&mut told).unwrap();
        assert_eq!(told, "hello");
    }
}
