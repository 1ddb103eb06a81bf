//! Tests of the rig itself.

mod hosts;
mod proxies;
mod servers;
mod survivors;
