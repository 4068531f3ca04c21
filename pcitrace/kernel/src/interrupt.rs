//! Whether the caller wants the work to end, for whatever takes long: it asks between pieces of a few milliseconds.

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// To ask more often would cost more than it gains: nobody sees a twentieth of a second.
pub const OFTEN: Duration = Duration::from_millis(50);

struct Asking {
    go_on: Box<dyn FnMut() -> bool>,
    last: Instant,
}

thread_local! {
    static ASKING: RefCell<Option<Asking>> = const { RefCell::new(None) };
}

/// Does `work`, and on this thread asks `go_on` from time to time.
pub fn asking<T>(go_on: impl FnMut() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    struct Before(Option<Asking>);
    impl Drop for Before {
        fn drop(&mut self) {
            ASKING.replace(self.0.take());
        }
    }
    let _before = Before(ASKING.replace(Some(Asking { go_on: Box::new(go_on), last: Instant::now() })));
    work()
}

/// An error if the work is to end.
pub fn check() -> Result<()> {
    let go_on = ASKING.with_borrow_mut(|asking| match asking {
        Some(asking) if asking.last.elapsed() >= OFTEN => {
            let go_on = (asking.go_on)();
            asking.last = Instant::now();
            go_on
        }
        _ => true,
    });
    if go_on { Ok(()) } else { Err(Error::Interrupted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_asked() {
        let started = Instant::now();
        let result = asking(
            || false,
            || {
                (0..1000).try_for_each(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    check()
                })
            },
        );
        assert!(matches!(result, Err(Error::Interrupted)));
        assert!(started.elapsed() < Duration::from_millis(500));
        assert!(check().is_ok());
    }
}
