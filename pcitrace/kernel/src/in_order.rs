//! Work on several threads whose results are taken in order.

use crate::error::Result;
use crate::interrupt::{self, OFTEN};
use std::collections::BTreeMap;
use std::iter::{Enumerate, Fuse};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Items a thread that may be between `items` and `take`: that bounds memory, and lets a fast thread go on before a slow one.
const UNDER_WAY: usize = 4;

/// Runs `work` on every item on `threads` threads, this one among them, and gives the results to `take` in the order of the
/// items. Each thread has something of its own that `work` may use again. Where the next item takes long to come (from a
/// pipe), or its work, this thread asks meanwhile whether to go on; on the others [`interrupt::check`] says what came of that.
pub fn in_order<T: Send, R: Send, S: Default>(
    items: impl Iterator<Item = Result<T>> + Send,
    threads: usize,
    work: impl Fn(T, &mut S) -> Result<R> + Sync,
    take: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    in_order_of(items, threads, threads * UNDER_WAY, work, take)
}

/// The same, with so many items at most between `items` and `take`.
pub fn in_order_of<T: Send, R: Send, S: Default>(
    items: impl Iterator<Item = Result<T>> + Send,
    threads: usize,
    under_way: usize,
    work: impl Fn(T, &mut S) -> Result<R> + Sync,
    mut take: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let (permit, permits) = channel();
    for _ in 0..under_way {
        let _ = permit.send(());
    }
    // Whoever is free makes the next item, once it is permitted.
    let (permits, items, over) = (Mutex::new(permits), Items::new(items), Over::default());
    let (permits, items, work) = (&permits, &items, &work);
    std::thread::scope(move |scope| {
        // Goes before the other threads are waited for.
        let over = over;
        let (done, results) = channel();
        for _ in 1..threads {
            let (done, ended) = (done.clone(), over.0.clone());
            scope.spawn(move || {
                let mut own = S::default();
                let next = || {
                    permits.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()?;
                    items.next().ok()?
                };
                // A thread that just stopped would be waited for: what it panicked with goes on with the results.
                let go_on = move || !ended.load(Ordering::Relaxed);
                interrupt::asking(go_on, || {
                    loop {
                        let step = catch_unwind(AssertUnwindSafe(|| {
                            next().map(|(index, item)| (index, item.and_then(|item| work(item, &mut own))))
                        }));
                        let last = !matches!(step, Ok(Some(_)));
                        let result = match step {
                            Ok(None) => break,
                            Ok(Some(result)) => Ok(result),
                            Err(panic) => Err(panic),
                        };
                        if done.send(result).is_err() || last {
                            break;
                        }
                    }
                });
            });
        }
        drop(done);
        let mut own = S::default();
        // This thread gives the permits: it must not wait for one, nor for another thread that does.
        let next_now = || match permits.try_lock().ok().and_then(|permits| permits.try_recv().ok()) {
            Some(()) => items.next().map(Some),
            None => Ok(None),
        };
        let mut more = true;
        // Results that came before those of earlier items.
        let mut early = BTreeMap::new();
        let mut due = 0;
        loop {
            match if more { next_now()? } else { None } {
                Some(Some((index, item))) => {
                    early.insert(index, item.and_then(|item| work(item, &mut own)));
                }
                Some(None) => more = false,
                None => match results.recv_timeout(OFTEN) {
                    Ok(Ok((index, result))) => {
                        early.insert(index, result);
                    }
                    Ok(Err(panic)) => resume_unwind(panic),
                    Err(RecvTimeoutError::Timeout) => interrupt::check()?,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                },
            }
            for result in results.try_iter() {
                early.extend([result.unwrap_or_else(|panic| resume_unwind(panic))]);
            }
            while let Some(result) = early.remove(&due) {
                take(result?)?;
                interrupt::check()?;
                let _ = permit.send(());
                due += 1;
            }
        }
    })
}

/// Says to the other threads that this one has gone, also by an error or a panic.
#[derive(Default)]
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The items with their numbers, for several threads. None waits for its turn without asking whether to go on.
struct Items<I: Iterator> {
    /// None while a thread makes an item.
    rest: Mutex<Option<Fuse<Enumerate<I>>>>,
    back: Condvar,
}

impl<I: Iterator> Items<I> {
    fn new(items: I) -> Self {
        Items { rest: Mutex::new(Some(items.enumerate().fuse())), back: Condvar::new() }
    }

    fn next(&self) -> Result<Option<(usize, I::Item)>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mine = loop {
            match rest.take() {
                Some(mine) => break mine,
                None => rest = self.back.wait_timeout(rest, OFTEN).unwrap_or_else(PoisonError::into_inner).0,
            }
            interrupt::check()?;
        };
        drop(rest);
        let next = mine.next();
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(mine);
        self.back.notify_one();
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn results_come_in_order_and_few_are_under_way() {
        let (begun, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items = (0..200).map(|item| {
            begun.fetch_add(1, Ordering::SeqCst);
            Ok(item)
        });
        let work = |item: usize, _: &mut ()| {
            // The first item takes longest.
            std::thread::sleep(Duration::from_micros(if item == 0 { 50_000 } else { item as u64 % 7 * 50 }));
            Ok(item * item)
        };
        let mut taken = Vec::new();
        in_order(items, 3, work, |square| {
            most.fetch_max(begun.load(Ordering::SeqCst) - taken.len(), Ordering::SeqCst);
            taken.push(square);
            Ok(())
        })
        .unwrap();
        assert_eq!(taken, (0..200).map(|item| item * item).collect::<Vec<_>>());
        assert!(most.load(Ordering::SeqCst) <= 3 * UNDER_WAY);
    }

    #[test]
    fn a_panic_in_a_worker_ends_it() {
        for threads in [2, 3, 5] {
            let result = catch_unwind(|| {
                in_order(
                    (0..1000).map(Ok),
                    threads,
                    |item: usize, _: &mut ()| {
                        std::thread::sleep(Duration::from_micros(50));
                        assert!(item != 300, "worker {item}");
                        Ok(item)
                    },
                    |_| Ok(()),
                )
            });
            let panic = result.unwrap_err();
            assert!(panic.downcast_ref::<String>().unwrap().contains("worker 300"), "{threads} threads");
        }
    }

    #[test]
    fn the_first_error_in_order_ends_it() {
        for threads in [1, 2, 5] {
            let items = (0..1000).map(|item| if item == 90 { Err(Error::Decode("item".into())) } else { Ok(item) });
            let work = |item: usize, _: &mut ()| {
                if item == 40 {
                    std::thread::sleep(Duration::from_millis(20));
                }
                if item >= 40 { Err(Error::Decode(format!("work {item}"))) } else { Ok(item) }
            };
            let mut taken = 0;
            let error = in_order(items, threads, work, |_| {
                taken += 1;
                Ok(())
            });
            assert_eq!((error.unwrap_err().to_string().as_str(), taken), ("work 40", 40));
            let refused = in_order(
                (0..1000).map(Ok),
                threads,
                |item: usize, _: &mut ()| Ok(item),
                |item| {
                    if item == 7 { Err(Error::Interrupted) } else { Ok(()) }
                },
            );
            assert!(matches!(refused, Err(Error::Interrupted)));
        }
    }
}
