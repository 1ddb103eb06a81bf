//! The filter of system calls: the ways out of a command that neither Landlock nor mounts close.
//!
//! A refused call fails with EPERM. A call with its arguments in memory, which a filter cannot read, fails with
//! ENOSYS, so that programs fall back to the older one.

use super::by_number::{self, Verdict};
use super::policy::WallPolicy;
use crate::wire::sandbox::SandboxNetwork;
use nix::errno::Errno;
use nix::libc;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::io;

/// The version of Landlock from which truncation by name is a right of its own.
const ABI_WITH_TRUNCATE: i32 = 3;

/// Calls that are refused with any arguments.
const REFUSED: &[libc::c_long] = &[
    // Ways to act without further calls.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory and descriptors of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Keys, which are shared by all processes of the user.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Large parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Files by number instead of path.
    libc::SYS_open_by_handle_at,
];

/// Memory, queues and semaphores of all processes of the user, unless the command has a namespace of its own for them.
const SHARED_BY_NAME: [libc::c_long; 13] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that change how a process, 0 for the caller, gets processors.
const SCHEDULING: [libc::c_long; 3] =
    [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];

/// The kind of receiver of a disk priority that is one process, 0 for the caller.
const IO_PRIORITY_OF_PROCESS: u64 = 1;

/// The flags of `clone` that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The mask of the type of a socket, without its flags.
const SOCKET_TYPE: i32 = 0xf;

/// The types of sockets other than streams and datagrams: raw, reliable datagrams, sequenced packets, DCCP, packets.
const UNUSUAL_TYPES: [i32; 5] = [3, 4, 5, 6, 10];

/// The request to put characters into the input of a terminal, and that of the console's selection.
const TERMINAL_INPUT: [u32; 2] = [0x5412, 0x541c];

/// The filter of one command.
#[derive(Debug)]
pub(super) struct Filter(BpfProgram);

/// An argument of a call, by its place.
#[derive(Debug)]
struct Argument(u8, SeccompCmpArgLen);

impl Argument {
    fn is(&self, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
        SeccompCondition::new(self.0, self.1.clone(), operator, value).map_err(io::Error::other)
    }

    /// The bits of `mask` have this value.
    fn has(&self, mask: i32, value: i32) -> io::Result<SeccompCondition> {
        self.is(MaskedEq(bits(mask)), bits(value))
    }

    fn is_none_of(&self, values: &[i32]) -> io::Result<Vec<SeccompCondition>> {
        values.iter().map(|value| self.is(Ne, bits(*value))).collect()
    }
}

const fn word(place: u8) -> Argument {
    Argument(place, Dword)
}

/// The refused calls, each with the cases in which it is refused; no case for always.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<i64, Vec<SeccompRule>>);

impl Refusals {
    /// Refuses a call if all conditions hold.
    fn add(&mut self, call: libc::c_long, conditions: Vec<SeccompCondition>) -> io::Result<()> {
        let rule = SeccompRule::new(conditions).map_err(io::Error::other)?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }
}

impl Filter {
    /// Compiles the filter of this policy for a kernel with this version of Landlock.
    pub(super) fn compile(policy: &WallPolicy, landlock: i32) -> io::Result<Self> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
        let mut refusals = Refusals::default();
        let shared = if policy.has_namespaces { &[][..] } else { &SHARED_BY_NAME };
        for call in REFUSED.iter().chain(shared) {
            refusals.0.insert(*call, Vec::new());
        }
        add_sockets(&mut refusals, policy.network)?;
        if policy.network == SandboxNetwork::Hosts && !policy.has_namespaces {
            add_all_but_connections(&mut refusals)?;
        }
        add_processes(&mut refusals)?;
        let mut verdicts = BTreeMap::from([(libc::SYS_clone3, Verdict::Absent)]);
        if landlock < ABI_WITH_TRUNCATE {
            add_truncation(&mut refusals)?;
            verdicts.insert(libc::SYS_openat2, Verdict::Absent);
        }
        let mut by_argument = refusals.0;
        by_argument.retain(|call, cases| {
            let is_always = cases.is_empty();
            verdicts.insert(*call, if is_always { Verdict::Refused } else { Verdict::Filtered });
            !is_always
        });
        let refused = SeccompAction::Errno(Errno::EPERM as u32);
        let filter = SeccompFilter::new(by_argument, SeccompAction::Allow, refused, arch);
        let filter = BpfProgram::try_from(filter.map_err(io::Error::other)?);
        let filter = filter.map_err(io::Error::other)?;
        Ok(Self(by_number::in_front_of(&filter, &verdicts)?))
    }

    /// Binds this process and its descendants to the filter. Makes only system calls.
    pub(super) fn install(&self) -> io::Result<()> {
        apply_filter(&self.0).map_err(io::Error::other)
    }
}

/// Refuses all sockets but TCP, UDP, routing tables and socket pairs.
fn add_sockets(refusals: &mut Refusals, network: SandboxNetwork) -> io::Result<()> {
    let (family, kind, protocol) = (word(0), word(1), word(2));
    let families = match network {
        SandboxNetwork::Open | SandboxNetwork::Hosts | SandboxNetwork::Own => {
            &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK][..]
        }
        SandboxNetwork::Off => &[libc::AF_NETLINK][..],
    };
    refusals.add(libc::SYS_socket, family.is_none_of(families)?)?;
    for unusual in UNUSUAL_TYPES {
        let is_unusual = kind.has(SOCKET_TYPE, unusual)?;
        let no_netlink = family.is(Ne, bits(libc::AF_NETLINK))?;
        refusals.add(libc::SYS_socket, vec![is_unusual, no_netlink])?;
    }
    let mut conditions = protocol.is_none_of(&[0, libc::IPPROTO_TCP, libc::IPPROTO_UDP])?;
    conditions.push(family.is(Ne, bits(libc::AF_NETLINK))?);
    refusals.add(libc::SYS_socket, conditions)?;
    let is_netlink = family.is(Eq, bits(libc::AF_NETLINK))?;
    let is_other = protocol.is(Ne, bits(libc::NETLINK_ROUTE))?;
    refusals.add(libc::SYS_socket, vec![is_netlink, is_other])?;
    refusals.add(libc::SYS_socketpair, vec![family.is(Ne, bits(libc::AF_UNIX))?])?;
    // Fast open connects without `connect`.
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        let is_fast = word(flags).has(libc::MSG_FASTOPEN, libc::MSG_FASTOPEN)?;
        refusals.add(call, vec![is_fast])?;
    }
    let is_tcp = word(1).is(Eq, bits(libc::IPPROTO_TCP))?;
    let is_fast = word(2).is(Eq, bits(libc::TCP_FASTOPEN_CONNECT))?;
    refusals.add(libc::SYS_setsockopt, vec![is_tcp, is_fast])
}

/// Refuses UDP, and to be connected to, where the command has the network of the machine. Its connections are judged one
/// by one.
fn add_all_but_connections(refusals: &mut Refusals) -> io::Result<()> {
    refusals.0.insert(libc::SYS_listen, Vec::new());
    for family in [libc::AF_INET, libc::AF_INET6] {
        let is_udp = word(1).has(SOCKET_TYPE, libc::SOCK_DGRAM)?;
        refusals.add(libc::SYS_socket, vec![word(0).is(Eq, bits(family))?, is_udp])?;
    }
    Ok(())
}

/// Refuses new namespaces, and the limits and priorities of other processes.
fn add_processes(refusals: &mut Refusals) -> io::Result<()> {
    for namespace in NAMESPACES {
        let makes_it = Argument(0, Qword).has(namespace, namespace)?;
        refusals.add(libc::SYS_clone, vec![makes_it])?;
    }
    let of_other = word(0).is(Ne, 0)?;
    let sets_limit = Argument(2, Qword).is(Ne, 0)?;
    refusals.add(libc::SYS_prlimit64, vec![of_other, sets_limit])?;
    for place in [0, 1] {
        refusals.add(libc::SYS_setpriority, vec![word(place).is(Ne, 0)?])?;
    }
    for call in SCHEDULING {
        refusals.add(call, vec![word(0).is(Ne, 0)?])?;
    }
    refusals.add(libc::SYS_ioprio_set, vec![word(0).is(Ne, IO_PRIORITY_OF_PROCESS)?])?;
    refusals.add(libc::SYS_ioprio_set, vec![word(1).is(Ne, 0)?])?;
    for request in TERMINAL_INPUT {
        refusals.add(libc::SYS_ioctl, vec![word(1).is(Eq, u64::from(request))?])?;
    }
    Ok(())
}

/// Refuses truncation by name, which early versions of Landlock do not know.
fn add_truncation(refusals: &mut Refusals) -> io::Result<()> {
    refusals.0.insert(libc::SYS_truncate, Vec::new());
    let reads_and_truncates =
        |place| word(place).has(libc::O_TRUNC | libc::O_ACCMODE, libc::O_TRUNC);
    #[cfg(target_arch = "x86_64")]
    refusals.add(libc::SYS_open, vec![reads_and_truncates(1)?])?;
    refusals.add(libc::SYS_openat, vec![reads_and_truncates(2)?])
}

fn bits(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}
