//! Several machines on one: hosts as network namespaces, a NATS server that fails on command, a slow and breakable
//! TCP proxy, a schedule of faults from a seed, and the judge of what arrived.

pub(crate) mod faults;
pub(crate) mod files;
pub(crate) mod judge;
pub(crate) mod namespaces;
pub(crate) mod nats_install;
pub(crate) mod nats_server;
pub(crate) mod nats_wire;
pub(crate) mod no_syncs;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod python_package;
pub(crate) mod rng;
pub(crate) mod ssh_server;
pub(crate) mod trust;

mod self_test;
