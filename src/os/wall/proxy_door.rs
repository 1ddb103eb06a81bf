//! The way of a walled command to the proxy of its agent: one address on loopback, whatever walls there are.
//!
//! The socket that listens there is made by the command's process in a network namespace of its own, or else by the
//! supervisor. Either sends it to the agent, which accepts the connections.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The address at which commands find the proxy.
pub(crate) const PROXY_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);

/// Returns the two ends of the channel on which the listening socket comes: for the agent, and for the command's side.
pub(in crate::os) fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
    Ok(socketpair(AddressFamily::Unix, kind, None, flags)?)
}

/// Listens at the address of commands, in a network namespace whose loopback is up.
pub(super) fn listen_for_commands() -> io::Result<TcpListener> {
    TcpListener::bind(PROXY_ADDRESS)
}

/// Listens at a free port of the machine's loopback.
pub(super) fn listen_anywhere() -> io::Result<TcpListener> {
    TcpListener::bind((*PROXY_ADDRESS.ip(), 0))
}

/// Sends a descriptor.
pub(super) fn send(channel: &OwnedFd, sent: &impl AsRawFd) -> io::Result<()> {
    let descriptors = [sent.as_raw_fd()];
    let messages = [ControlMessage::ScmRights(&descriptors)];
    let content = [IoSlice::new(b"L")];
    sendmsg::<()>(channel.as_raw_fd(), &content, &messages, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives a descriptor without waiting. Fails with `WouldBlock` while there is none, and with `UnexpectedEof` if none
/// will come.
pub(super) fn receive(channel: &OwnedFd) -> io::Result<OwnedFd> {
    let mut content = [0];
    let mut parts = [IoSliceMut::new(&mut content)];
    let mut space = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let received = match recvmsg::<()>(channel.as_raw_fd(), &mut parts, Some(&mut space), flags) {
        Err(Errno::ECONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
        received => received?,
    };
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = message
            && let [number] = descriptors[..]
        {
            // SAFETY: the kernel has made this descriptor for this process.
            #[expect(unsafe_code, reason = "a descriptor that comes as a number")]
            return Ok(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Receives the listening socket of a command, as [`receive`] does.
pub(crate) fn receive_listener(channel: &OwnedFd) -> io::Result<TcpListener> {
    let listener = TcpListener::from(receive(channel)?);
    listener.set_nonblocking(true)?;
    Ok(listener)
}
