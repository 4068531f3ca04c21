//! Work on several threads whose results are taken in order.

use crate::error::Result;
use crate::interrupt;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

/// Items a thread that may be between `items` and `take`: that bounds memory, and lets a fast thread go on before a slow one.
const UNDER_WAY: usize = 4;

/// Runs `work` on every item on `threads` threads, this one among them, and gives the results to `take` in the order of the
/// items. Each thread has something of its own that `work` may use again.
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
    let (permits, items) = (Mutex::new(permits), Mutex::new(items.enumerate().fuse()));
    let make = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (permits, make, work) = (&permits, &make, &work);
    std::thread::scope(move |scope| {
        let (done, results) = channel();
        for _ in 1..threads {
            let done = done.clone();
            scope.spawn(move || {
                let mut own = S::default();
                let next = || {
                    permits.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()?;
                    make()
                };
                // A thread that just stopped would be waited for: what it panicked with goes on with the results.
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
        }
        drop(done);
        let mut own = S::default();
        // This thread gives the permits: it must not wait for one, nor for another thread that does.
        let next_now = || {
            permits.try_lock().ok()?.try_recv().ok()?;
            Some(make())
        };
        let mut more = true;
        // Results that came before those of earlier items.
        let mut early = BTreeMap::new();
        let mut due = 0;
        loop {
            match more.then(next_now).flatten() {
                Some(Some((index, item))) => {
                    early.insert(index, item.and_then(|item| work(item, &mut own)));
                }
                Some(None) => more = false,
                None => match results.recv() {
                    Ok(Ok((index, result))) => {
                        early.insert(index, result);
                    }
                    Ok(Err(panic)) => resume_unwind(panic),
                    Err(_) => return Ok(()),
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
