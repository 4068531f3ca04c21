//! A switch to test with: what it does is a plan, and what it did stands in `switch.csv`.
//!
//! [`plan`] says what it is asked to be; [`fabric`] decides about each frame and knows no sockets, only times;
//! [`line`](mod@line) is one direction of a port. [`live`] moves real frames through it, [`world`] frames that exist
//! only as events between the nodes of the plan ([`nodes`], [`actors`]).

pub mod actors;
pub mod conduct;
pub mod fabric;
pub mod impairment;
pub mod line;
pub mod live;
pub mod nodes;
pub mod parcel;
pub mod plan;
pub mod play;
pub mod table;
pub mod truth;
pub mod virtual_run;
pub mod world;

/// Picoseconds: 35 ns on top of minutes, exactly, and equal seeds give equal runs.
pub type Ps = i64;

pub const PS_PER_NS: i64 = 1_000;

/// Time in ps of µs as people write them.
pub fn ps(us: f64) -> Ps {
    (us * 1e6).round() as Ps
}

/// Time that `bytes` take on a line.
pub fn duration(bytes: u64, rate_mbit_s: f64) -> Ps {
    (bytes as f64 * 8e6 / rate_mbit_s).round() as Ps
}
