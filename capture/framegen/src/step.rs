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

/// Bytes of a line that are looked at.
const LONGEST: usize = 64;

/// The time that a line tells; None where it tells none.
fn start(line: &str) -> Result<Option<i64>, String> {
    let Some(text) = line.strip_prefix("at ") else {
        return Ok(None);
    };
    text.trim().parse().map(Some).map_err(|_| format!("`{line}`: a time is `at` and ns of CLOCK_MONOTONIC_RAW"))
}

/// Whether to wait, and how long at most.
#[derive(Clone, Copy, Debug)]
pub struct Steps(pub Option<Duration>);

impl Steps {
    pub fn wanted(self) -> bool {
        self.0.is_some()
    }

    /// Until a line comes; `check` may end it earlier. The line may say `at NS`: when to begin, by this host's
    /// CLOCK_MONOTONIC_RAW, so that several tests begin together.
    pub fn wait(
        self,
        step: Step,
        output: &Output,
        check: impl Fn() -> Result<(), SessionError>,
    ) -> Result<Option<i64>, SessionError> {
        let Some(limit) = self.0 else {
            return Ok(None);
        };
        let (name, text) = match step {
            Step::Ready => ("ready", "ready; press Enter to send"),
            Step::Sent => ("sent", "sent; press Enter to end"),
        };
        output.event(name, &json!({}), text);
        let begin = Instant::now();
        let mut line = String::new();
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
                1 if byte == b'\n' => return start(&line).map_err(|text| SessionError::Io(io::Error::other(text))),
                1 if line.len() < LONGEST => line.push(char::from(byte)),
                _ => {}
            }
        }
        failed(format!("nobody answered \"{name}\" within {} s", limit.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::start;

    #[test]
    fn a_line_may_tell_a_time() {
        assert_eq!((start("go"), start(""), start("at 5")), (Ok(None), Ok(None), Ok(Some(5))));
        assert!(start("at once").expect_err("no time").contains("at once"));
    }
}
