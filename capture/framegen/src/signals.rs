//! SIGINT and SIGTERM ask the run to end; it then ends in order, with everything that arrived.

use crate::socket::check;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

static STOPS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    STOPS.fetch_add(1, Ordering::Relaxed);
}

pub fn install() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic. No SA_RESTART: waiting calls return.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
            check(libc::sigaction(signal, &action, std::ptr::null_mut()))?;
        }
    }
    Ok(())
}

/// How often it was asked for: the first ends the test, the next what still goes on after it.
pub fn count() -> usize {
    STOPS.load(Ordering::Relaxed)
}

pub fn stop_requested() -> bool {
    count() > 0
}

/// Be asked to end when the process that started this one ends, however it ends.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: prctl with plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) }).map(drop)
}
