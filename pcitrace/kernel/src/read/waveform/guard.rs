//! Turns a panic in a library into an error, without its message on stderr, and keeps what it prints out of our output.

use crate::interrupt;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `call` on a thread of its own, so that who waits for it may give up: then it goes on alone, and nobody hears of it.
/// The inner error is its own.
pub fn guarded<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> crate::error::Result<Result<T, String>> {
    let (done, result) = channel();
    let worker = std::thread::Builder::new().name("wellen".into()).spawn(move || done.send(caught(call)));
    if worker.is_err() {
        return Ok(Err("no thread can be started".into()));
    }
    loop {
        match result.recv_timeout(Duration::from_millis(50)) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => interrupt::check()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Err("its reader stopped".into())),
        }
    }
}

/// Runs `call`, which must stay on this thread. What it was working on must not be used after an error.
fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                others(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    QUIET.set(false);
    result.unwrap_or_else(|panic| Err(format!("it is damaged ({})", message(&*panic))))
}

/// Runs `call` with standard output sent where errors go: wellen prints remarks on some nets of FST files there, between
/// our tables. So it does with what other threads print meanwhile: this is for short calls.
pub fn aside<T>(call: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    {
        use std::io::Write;
        use std::sync::{Mutex, PoisonError};
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = std::io::stdout().flush();
        // Safety: these take and give descriptors only; the copy is put back and closed below, whatever `call` does.
        let stdout = unsafe { libc::dup(1) };
        if stdout < 0 {
            return call();
        }
        unsafe { libc::dup2(2, 1) };
        let result = catch_unwind(AssertUnwindSafe(call));
        let _ = std::io::stdout().flush();
        unsafe {
            libc::dup2(stdout, 1);
            libc::close(stdout);
        }
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
    #[cfg(not(unix))]
    call()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given");
    text.lines().next().unwrap_or_default().chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let result: Result<(), String> = guarded(|| panic!("entry {} is odd\nand more", 7)).unwrap();
        assert_eq!(result.unwrap_err(), "it is damaged (entry 7 is odd)");
        assert_eq!(guarded(|| Ok(1)).unwrap(), Ok(1));
        assert_eq!(guarded(|| Err::<(), _>("no".into())).unwrap(), Err("no".into()));
    }
}
