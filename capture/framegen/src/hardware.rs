//! Arrival times taken by the card: switching them on, and bringing its clock onto ours.
//!
//! Ref: Linux Documentation/networking/timestamping.rst; linux/net_tstamp.h, linux/ptp_clock.h.

use crate::interfaces::Query;
use crate::socket::{PacketSocket, check, set_option};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const SIOCSHWTSTAMP: libc::c_ulong = 0x89b0;
const SIOCGHWTSTAMP: libc::c_ulong = 0x89b1;
/// struct hwtstamp_config: flags, transmit type, receive filter. All 0 is off.
type Stamping = [u32; 3];
const FILTER_ALL: u32 = 1;
const RX_HARDWARE: u32 = 1 << 2;
const RAW_HARDWARE: u32 = 1 << 6;
/// PTP_SYS_OFFSET: _IOW('=', 5, struct ptp_sys_offset).
const PTP_SYS_OFFSET: libc::c_ulong =
    1 << 30 | (SYS_OFFSET_BYTES as libc::c_ulong) << 16 | (b'=' as libc::c_ulong) << 8 | 5;
const READINGS: usize = 5;
/// struct ptp_sys_offset: a count, three reserved words, 51 times of 16 bytes.
const SYS_OFFSET_BYTES: usize = 16 + 51 * 16;
/// The card's clock drifts: compared again after this time.
const COMPARE_NS: i64 = 100_000_000;

/// Stamping is a setting of the whole card, for all who use it: as it was found it is left.
struct Restored<R: Fn(libc::c_ulong, &mut Stamping) -> io::Result<()>> {
    request: R,
    before: Stamping,
}

impl<R: Fn(libc::c_ulong, &mut Stamping) -> io::Result<()>> Restored<R> {
    fn set(request: R, mut wanted: Stamping) -> io::Result<Self> {
        // A driver that does not tell is switched off afterwards: so a card begins.
        let mut before = Stamping::default();
        let told = request(SIOCGHWTSTAMP, &mut before);
        let before = if told.is_ok() { before } else { Stamping::default() };
        request(SIOCSHWTSTAMP, &mut wanted)?;
        Ok(Restored { request, before })
    }
}

impl<R: Fn(libc::c_ulong, &mut Stamping) -> io::Result<()>> Drop for Restored<R> {
    fn drop(&mut self) {
        let _ = (self.request)(SIOCSHWTSTAMP, &mut self.before.clone());
    }
}

type Request = Box<dyn Fn(libc::c_ulong, &mut Stamping) -> io::Result<()> + Send>;

/// Number of the clock by which a card stamps received frames.
pub fn clock_number(query: &Query, interface: &str) -> io::Result<u32> {
    let can = query.timestamping(interface).filter(|can| can.hardware_receive);
    can.and_then(|can| can.phc)
        .ok_or_else(|| io::Error::other(format!("{interface} does not stamp received frames; use another --receive")))
}

/// The clock of a card.
pub struct CardClock {
    device: File,
    _stamping: Restored<Request>,
    /// CLOCK_REALTIME minus the card's clock, and when that was compared.
    realtime_minus_card: i64,
    compared_at: Option<i64>,
}

impl CardClock {
    /// Have every frame that arrives at `interface` stamped by the card, for `socket`.
    pub fn enable(socket: &PacketSocket, interface: &str) -> io::Result<CardClock> {
        let query = Query::new()?;
        let number = clock_number(&query, interface)?;
        let name = interface.to_owned();
        let request: Request = Box::new(move |code, data| query.request(&name, code, data));
        let stamping = Restored::set(request, [0, 0, FILTER_ALL])?;
        set_option(socket.raw(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &(RX_HARDWARE | RAW_HARDWARE))?;
        let path = format!("/dev/ptp{number}");
        let device = File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        Ok(CardClock { device, _stamping: stamping, realtime_minus_card: 0, compared_at: None })
    }

    /// A time of the card on CLOCK_REALTIME. `now` says how old the last comparison is.
    pub fn to_realtime(&mut self, card_ns: i64, now: i64) -> io::Result<i64> {
        if self.compared_at.is_none_or(|at| now - at > COMPARE_NS) {
            let mut bytes = [0u8; SYS_OFFSET_BYTES];
            bytes[..4].copy_from_slice(&(READINGS as u32).to_ne_bytes());
            // SAFETY: a struct ptp_sys_offset, which the driver fills in.
            check(unsafe { libc::ioctl(self.device.as_raw_fd(), PTP_SYS_OFFSET as _, bytes.as_mut_ptr()) })?;
            self.realtime_minus_card = tightest(&readings(&bytes));
            self.compared_at = Some(now);
        }
        Ok(card_ns + self.realtime_minus_card)
    }
}

/// The times in a struct ptp_sys_offset: system, card, system, ..., system; ns.
fn readings(bytes: &[u8; SYS_OFFSET_BYTES]) -> [i64; 2 * READINGS + 1] {
    std::array::from_fn(|index| {
        let at = 16 + index * 16;
        let seconds = i64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let nanoseconds = u32::from_ne_bytes(bytes[at + 8..at + 12].try_into().expect("4 bytes"));
        seconds * 1_000_000_000 + i64::from(nanoseconds)
    })
}

/// System minus card, from the reading between the two closest system times.
fn tightest(times: &[i64]) -> i64 {
    let readings = (1..times.len()).step_by(2).map(|i| (times[i + 1] - times[i - 1], times[i - 1], times[i]));
    let (width, before, card) = readings.min().expect("at least one reading");
    before + width / 2 - card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_left_as_it_was_found() {
        use std::cell::Cell;
        for (found, tells) in [([0, 1, 12], true), ([0, 1, 12], false)] {
            let card = Cell::new(found);
            let request = |code, data: &mut Stamping| {
                match code {
                    SIOCGHWTSTAMP if tells => *data = card.get(),
                    SIOCGHWTSTAMP => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
                    _ => card.set(*data),
                }
                Ok(())
            };
            let stamping = Restored::set(request, [0, 0, FILTER_ALL]).expect("set");
            assert_eq!(card.get(), [0, 0, FILTER_ALL]);
            drop(stamping);
            assert_eq!(card.get(), if tells { found } else { [0; 3] });
        }
    }

    #[test]
    fn the_tightest_reading_counts() {
        // The card is 1000 behind; the second reading took 4, the others 40.
        assert_eq!(tightest(&[5000, 4020, 5040, 4042, 5044, 4064, 5084]), 1000);
    }

    #[test]
    fn times_are_read_from_the_structure() {
        let mut bytes = [0u8; SYS_OFFSET_BYTES];
        bytes[16..24].copy_from_slice(&3i64.to_ne_bytes());
        bytes[24..28].copy_from_slice(&7u32.to_ne_bytes());
        bytes[32..40].copy_from_slice(&4i64.to_ne_bytes());
        assert_eq!(readings(&bytes)[..3], [3_000_000_007, 4_000_000_000, 0]);
    }
}
