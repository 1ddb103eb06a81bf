//! Faults: full disks, killed processes, failing system calls, signals, clocks and memory.

mod bad_files;
mod blocked_output;
mod clock_jumps;
mod containment;
mod disk_full;
mod failpoints;
mod oom;
mod pid_reuse;
mod signal_storms;
mod slow_exits;
mod spawn_faults;
mod syscalls;
