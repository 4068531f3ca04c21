//! Turns a panic in a library into an error, without its message on stderr.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `call`, which must stay on this thread. What it was working on must not be used after an error.
pub fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
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
        let result: Result<(), String> = guarded(|| panic!("entry {} is odd\nand more", 7));
        assert_eq!(result.unwrap_err(), "it is damaged (entry 7 is odd)");
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        assert_eq!(guarded(|| Err::<(), _>("no".into())), Err("no".into()));
    }
}
