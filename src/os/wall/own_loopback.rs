//! The loopback of a network namespace, which is down at first.

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::io;
use std::os::fd::AsRawFd;

/// Sets up the loopback of this process's network namespace.
pub(super) fn set_up() -> io::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up },
    };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = libc::c_char::from_ne_bytes([*byte]);
    }
    let pointer = &raw mut request;
    // SAFETY: an open socket, and a request with a name that ends with NUL.
    #[expect(unsafe_code, reason = "nix has no call for the flags of an interface")]
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, pointer) };
    Ok(Errno::result(set).map(drop)?)
}
