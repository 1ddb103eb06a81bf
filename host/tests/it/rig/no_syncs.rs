//! A process whose syncs do nothing: the kernel says that they have succeeded. It needs no other program.

use nix::libc;
use nix::sys::prctl::set_no_new_privs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A seccomp filter: `fsync` and `fdatasync` are not carried out, and return 0.
const FILTER: [libc::sock_filter; 5] = [
    // The number of the system call.
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
    jump_if(libc::SYS_fsync, 1, 0),
    jump_if(libc::SYS_fdatasync, 0, 1),
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO),
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
];

#[expect(clippy::cast_possible_truncation, reason = "codes of BPF have 16 bits")]
const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "codes of BPF have 16 bits, numbers of system calls are small"
)]
const fn jump_if(call: libc::c_long, jt: u8, jf: u8) -> libc::sock_filter {
    let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    libc::sock_filter { code: code as u16, jt, jf, k: call as u32 }
}

/// Has the process of a command, and those that it starts, sync nothing.
pub(crate) fn without_syncs(command: &mut Command) {
    let install = || {
        set_no_new_privs()?;
        let mut filter = FILTER;
        let program = libc::sock_fprog { len: 5, filter: filter.as_mut_ptr() };
        #[expect(unsafe_code, reason = "the kernel takes the filter by this call alone")]
        // SAFETY: the filter lives until the call returns, and the kernel copies it.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    #[expect(unsafe_code, reason = "a forked process limits itself, and this one does not")]
    // SAFETY: prctl is async-signal-safe, and the closure allocates nothing.
    unsafe {
        command.pre_exec(install);
    }
}
