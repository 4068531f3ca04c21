//! Raw IEEE 802.3 test frames between two hosts or more: sent at known times, received, checked, counted.
//!
//! A library only so that tests and fuzzing can reach the parts; the program is `framegen`, described in
//! docs/framegen.md. From the wire inwards: [`frame`] and [`payload`] say what a frame is, [`socket`] and [`ring`] move
//! frames, [`roles`] are what a node does with them, [`engine`] runs one job, [`control`], [`server`] and [`session`]
//! carry jobs to the peers, [`run`] steers a test, [`summary`] accounts for it.

#[cfg(not(target_os = "linux"))]
compile_error!("framegen uses packet sockets: it runs on Linux");

pub mod cli;
pub mod clock;
pub mod control;
pub mod crc;
pub mod engine;
pub mod folder;
pub mod frame;
pub mod hardware;
pub mod host;
pub mod host_state;
pub mod interfaces;
pub mod job;
pub mod keepalive;
pub mod key;
pub mod lists;
pub mod log;
pub mod netlink;
pub mod output;
pub mod pacing;
pub mod pause;
pub mod payload;
pub mod plan;
pub mod plausible;
pub mod point;
pub mod random;
pub mod ring;
pub mod roles;
pub mod run;
pub mod safety;
pub mod sendbatch;
pub mod serve;
pub mod server;
pub mod session;
pub mod signals;
pub mod socket;
pub mod stats;
pub mod step;
pub mod store;
pub mod summary;
pub mod switch;
pub mod sync;
pub mod tally;
pub mod test_options;
pub mod trips;
pub mod udp;
pub mod usage;
