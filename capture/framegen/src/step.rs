//! Waiting for whoever records: a line on standard input at "ready" and at "sent".

use crate::output::Output;
use crate::session::SessionError;
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Ready,
    Sent,
}

/// Whether to wait, and how long at most.
#[derive(Clone, Copy, Debug)]
pub struct Steps(pub Option<Duration>);

impl Steps {
    pub fn wanted(self) -> bool {
        self.0.is_some()
    }

    /// Until a line comes; `check` may end it earlier.
    pub fn wait(
        self,
        step: Step,
        output: &Output,
        check: impl Fn() -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let Some(limit) = self.0 else {
            return Ok(());
        };
        let (name, text) = match step {
            Step::Ready => ("ready", "ready; press Enter to send"),
            Step::Sent => ("sent", "sent; press Enter to end"),
        };
        output.event(name, &json!({}), text);
        let begin = Instant::now();
        let failed = |text: String| Err(SessionError::Io(io::Error::other(text)));
        while begin.elapsed() < limit {
            check()?;
            let mut waiting = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            let ready = unsafe { libc::poll(&mut waiting, 1, 50) };
            if ready <= 0 {
                continue;
            }
            // Past std's buffer: what follows the line belongs to the next step.
            let mut byte = 0u8;
            // SAFETY: reads one byte into `byte`.
            match unsafe { libc::read(0, std::ptr::from_mut(&mut byte).cast(), 1) } {
                0 => {
                    return failed(format!("standard input ended before \"{name}\" was answered"));
                }
                1 if byte == b'\n' => return Ok(()),
                _ => {}
            }
        }
        failed(format!("nobody answered \"{name}\" within {} s", limit.as_secs_f64()))
    }
}
