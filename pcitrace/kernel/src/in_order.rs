//! Work on several threads whose results are taken in order.

use crate::error::Result;
use std::sync::mpsc::{Receiver, sync_channel};

/// Runs `work` on every item on `threads` threads and gives the results to `take` in the order of the items. Each thread has
/// something of its own that `work` may use again, and at most one item and one result waiting, so memory is bounded.
pub fn in_order<T: Send, R: Send, S: Default>(
    items: impl Iterator<Item = Result<T>> + Send,
    threads: usize,
    work: impl Fn(T, &mut S) -> Result<R> + Sync,
    mut take: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let mut inputs = Vec::new();
        let mut outputs: Vec<Receiver<Result<R>>> = Vec::new();
        for _ in 0..threads {
            let (input, from_feeder) = sync_channel::<Result<T>>(1);
            let (to_taker, output) = sync_channel(1);
            let work = &work;
            scope.spawn(move || {
                let mut own = S::default();
                for item in from_feeder {
                    let result = item.and_then(|item| work(item, &mut own));
                    if to_taker.send(result).is_err() {
                        break;
                    }
                }
            });
            inputs.push(input);
            outputs.push(output);
        }
        scope.spawn(move || {
            for (index, item) in items.enumerate() {
                let is_last = item.is_err();
                if inputs[index % threads].send(item).is_err() || is_last {
                    break;
                }
            }
        });
        for output in outputs.iter().cycle() {
            match output.recv() {
                Ok(result) => take(result?)?,
                // The thread whose turn it is has no more: all items are done.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    })
}
