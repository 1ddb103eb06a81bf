//! The capabilities of a command that runs as root, or as root of its own user namespace.

use nix::errno::Errno;
use nix::libc;
use std::io;

/// The capabilities that a command keeps: those that unpacking and installing files need.
const KEPT: [u32; 7] = [
    0,  // CHOWN
    1,  // DAC_OVERRIDE
    3,  // FOWNER
    4,  // FSETID
    6,  // SETGID
    7,  // SETUID
    10, // NET_BIND_SERVICE
];

/// The version of the kernel interface, with sets of 64 bits in two halves.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all capabilities of this process but [`KEPT`], also from the set that programs can gain.
pub(super) fn drop_all_but_few() -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: the kernel reads the header and fills two sets, which is the size of this version.
    #[expect(unsafe_code, reason = "nix has no capget")]
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    let has_any = sets.iter().any(|half| half.permitted != 0);
    // Only a process with capabilities may shrink the bounding set; `no_new_privs` binds the others.
    for number in (0..64).filter(|number| has_any && !KEPT.contains(number)) {
        match prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number)) {
            // The number is above the last one that the kernel knows.
            Err(Errno::EINVAL) => break,
            dropped => dropped?,
        }
    }
    let clear = libc::c_ulong::try_from(libc::PR_CAP_AMBIENT_CLEAR_ALL).unwrap_or_default();
    prctl(libc::PR_CAP_AMBIENT, clear)?;
    let kept = KEPT.iter().fold(0, |set, number| set | 1_u32 << number);
    let [low, high] = &mut sets;
    (low.effective, low.permitted, low.inheritable) =
        (low.effective & kept, low.permitted & kept, 0);
    *high = Sets::default();
    // SAFETY: the kernel reads the header and two sets.
    #[expect(unsafe_code, reason = "nix has no capset")]
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) })?;
    Ok(())
}

fn prctl(option: i32, argument: libc::c_ulong) -> nix::Result<()> {
    // SAFETY: these options of prctl take numbers only.
    #[expect(unsafe_code, reason = "nix does not have these options")]
    let done = unsafe { libc::prctl(option, argument, 0, 0, 0) };
    Errno::result(done).map(drop)
}
