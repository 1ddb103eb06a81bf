//! The sources that wake the event loop: descriptors, timers, signals.

pub(crate) mod aligned_interval;
pub(crate) mod async_fd;
pub(crate) mod event_loop;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod syscall_timeout;
pub(crate) mod wall_timer;
