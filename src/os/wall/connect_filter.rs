//! Connections of a command without a network namespace: each `connect` waits for the supervisor, which carries out
//! one to the proxy of the agent, and refuses every other.
//!
//! The supervisor reads the address once, and connects a socket of its own, which takes the place of the command's:
//! so no change of the address in between has an effect, and no descriptor of the command is needed.

use super::proxy_door::{self, PROXY_ADDRESS};
use nix::errno::Errno;
use nix::libc;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The time after which a connection on loopback has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest address that is read: one of IPv6.
const MAX_ADDRESS: usize = size_of::<libc::sockaddr_in6>();

/// The supervisor's side.
#[derive(Debug)]
pub(in crate::os) struct ConnectFilter {
    /// The end on which the descriptor of the filter comes from the command's process.
    channel: OwnedFd,
    requests: Option<OwnedFd>,
    proxy: SocketAddr,
}

/// The side of the command's process.
#[derive(Debug)]
pub(super) struct ConnectFilterSetup(OwnedFd);

impl ConnectFilter {
    /// Listens on loopback, and sends that socket to the agent.
    pub(super) fn prepare(agent: &OwnedFd) -> io::Result<(Self, ConnectFilterSetup)> {
        let listener = proxy_door::listen_anywhere()?;
        proxy_door::send(agent, &listener)?;
        let proxy = listener.local_addr()?;
        let (channel, theirs) = proxy_door::channel()?;
        Ok((Self { channel, requests: None, proxy }, ConnectFilterSetup(theirs)))
    }

    /// Takes over the filter of the started process. Fails if there is none.
    pub(in crate::os) fn attach(&mut self) -> io::Result<()> {
        self.requests = Some(proxy_door::receive(&self.channel)?);
        Ok(())
    }

    /// Returns the descriptor that is readable when a process wants to connect; `None` when all have exited.
    pub(in crate::os) fn requests(&self) -> Option<BorrowedFd<'_>> {
        self.requests.as_ref().map(AsFd::as_fd)
    }

    /// Forgets the filter, when no process is bound to it.
    pub(in crate::os) fn close(&mut self) {
        self.requests = None;
    }

    /// Answers one request. A process that has exited meanwhile needs no answer.
    pub(in crate::os) fn answer(&self) {
        let Some(requests) = &self.requests else { return };
        let Ok(request) = receive_request(requests) else { return };
        let error = match self.carry_out(requests, &request) {
            Ok(()) => 0,
            Err(why) => -why.raw_os_error().unwrap_or(libc::EPERM),
        };
        let mut answer = libc::seccomp_notif_resp { id: request.id, val: 0, error, flags: 0 };
        // SAFETY: an open descriptor, and a structure of the size in the request.
        #[expect(unsafe_code, reason = "nix has no notifications of seccomp")]
        unsafe {
            libc::ioctl(requests.as_raw_fd(), SEND, &raw mut answer);
        }
    }

    fn carry_out(&self, requests: &OwnedFd, request: &libc::seccomp_notif) -> io::Result<()> {
        let [target, address, length, ..] = request.data.args;
        let process = format!("/proc/{}", request.pid);
        let wanted = read_address(&process, address, length)?;
        is_valid(requests, request)?;
        if !is_proxy(&wanted) {
            return Err(Errno::EPERM.into());
        }
        let target = u32::try_from(target & u64::from(u32::MAX)).map_err(io::Error::other)?;
        let flags = descriptor_flags(&process, target)?;
        let stream = TcpStream::connect_timeout(&self.proxy, CONNECT_TIMEOUT)?;
        stream.set_nonblocking(flags & libc::O_NONBLOCK != 0)?;
        let mut added = libc::seccomp_notif_addfd {
            id: request.id,
            flags: REPLACE,
            srcfd: stream.as_raw_fd().cast_unsigned(),
            newfd: target,
            newfd_flags: (flags & libc::O_CLOEXEC).cast_unsigned(),
        };
        // SAFETY: open descriptors, and a structure of the size in the request.
        #[expect(unsafe_code, reason = "nix has no notifications of seccomp")]
        let added = unsafe { libc::ioctl(requests.as_raw_fd(), ADD_DESCRIPTOR, &raw mut added) };
        Ok(Errno::result(added).map(drop)?)
    }
}

impl ConnectFilterSetup {
    /// Binds this process to the filter, and sends its descriptor to the supervisor. Makes only system calls.
    pub(super) fn install(&self) -> io::Result<()> {
        let instruction = |code: u32, k: u32, jt: u8, jf: u8| {
            Ok::<_, io::Error>(libc::sock_filter {
                code: u16::try_from(code).map_err(io::Error::other)?,
                jt,
                jf,
                k,
            })
        };
        let connect = u32::try_from(libc::SYS_connect).map_err(io::Error::other)?;
        // The filter of refusals has killed every call of another architecture.
        let mut filter = [
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)?,
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, connect, 0, 1)?,
            instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF, 0, 0)?,
            instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0)?,
        ];
        let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
        let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        // SAFETY: a program of that length, which the kernel copies.
        #[expect(unsafe_code, reason = "nix has no call for filters")]
        let made = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
        let number = RawFd::try_from(Errno::result(made)?).map_err(io::Error::other)?;
        // SAFETY: the call has returned a new descriptor.
        #[expect(unsafe_code, reason = "a descriptor that comes as a number")]
        let requests = unsafe { OwnedFd::from_raw_fd(number) };
        proxy_door::send(&self.0, &requests)
    }
}

/// The numbers of the calls on the descriptor of a filter.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const CHECK_ID: libc::c_ulong = 0x4008_2102;
const ADD_DESCRIPTOR: libc::c_ulong = 0x4018_2103;

/// The flag that a new descriptor replaces the one of that number.
const REPLACE: u32 = 1;

fn receive_request(requests: &OwnedFd) -> io::Result<libc::seccomp_notif> {
    // SAFETY: a structure of integers, which the kernel wants to be zero, and fills.
    #[expect(unsafe_code, reason = "nix has no notifications of seccomp")]
    unsafe {
        let mut request: libc::seccomp_notif = std::mem::zeroed();
        Errno::result(libc::ioctl(requests.as_raw_fd(), RECEIVE, &raw mut request))?;
        Ok(request)
    }
}

/// Fails if the process of a request no longer waits: another one may have its number.
fn is_valid(requests: &OwnedFd, request: &libc::seccomp_notif) -> io::Result<()> {
    let mut id = request.id;
    // SAFETY: an open descriptor and an integer.
    #[expect(unsafe_code, reason = "nix has no notifications of seccomp")]
    let valid = unsafe { libc::ioctl(requests.as_raw_fd(), CHECK_ID, &raw mut id) };
    Ok(Errno::result(valid).map(drop)?)
}

/// Reads the bytes of an address from the memory of a process.
fn read_address(process: &str, address: u64, length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length & u64::from(u32::MAX)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length.min(MAX_ADDRESS)];
    File::open(format!("{process}/mem"))?.read_exact_at(&mut bytes, address)?;
    Ok(bytes)
}

/// Whether the bytes are the address of the proxy, for a socket of IPv4 or IPv6.
fn is_proxy(address: &[u8]) -> bool {
    let family = address.first_chunk().map(|bytes| i32::from(u16::from_ne_bytes(*bytes)));
    let port = address.get(2..4) == Some(&PROXY_ADDRESS.port().to_be_bytes());
    let host = match family {
        Some(libc::AF_INET) => address.get(4..8) == Some(&PROXY_ADDRESS.ip().octets()),
        Some(libc::AF_INET6) => {
            address.get(8..24) == Some(&PROXY_ADDRESS.ip().to_ipv6_mapped().octets())
        }
        Some(_) | None => false,
    };
    port && host
}

/// Returns the flags of a descriptor of a process.
fn descriptor_flags(process: &str, number: u32) -> io::Result<i32> {
    let text = fs::read_to_string(format!("{process}/fdinfo/{number}"))?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// Returns an address as a process passes it.
    fn bytes(text: &str) -> Vec<u8> {
        let address: SocketAddr = text.parse().unwrap();
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut bytes = u16::try_from(family).unwrap().to_ne_bytes().to_vec();
        bytes.extend(address.port().to_be_bytes());
        match address.ip() {
            IpAddr::V4(ip) => {
                bytes.extend(ip.octets());
                bytes.extend([0; 8]);
            }
            IpAddr::V6(ip) => {
                bytes.extend([0; 4]);
                bytes.extend(ip.octets());
                bytes.extend([0; 4]);
            }
        }
        bytes
    }

    #[test]
    fn only_the_address_of_the_proxy_is_one() {
        for proxy in ["127.0.0.1:3128", "[::ffff:127.0.0.1]:3128"] {
            assert!(is_proxy(&bytes(proxy)), "{proxy}");
        }
        for other in [
            "127.0.0.1:3129",
            "127.0.0.2:3128",
            "8.8.8.8:3128",
            "[::1]:3128",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert!(!is_proxy(&bytes(other)), "{other}");
        }
        assert!(!is_proxy(bytes("127.0.0.1:3128").get(..7).unwrap()) && !is_proxy(b""));
        let mut unspecified = bytes("127.0.0.1:3128");
        unspecified.splice(..2, [0, 0]);
        assert!(!is_proxy(&unspecified), "AF_UNSPEC");
    }
}
