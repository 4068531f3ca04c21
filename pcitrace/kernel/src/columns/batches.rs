//! A table in batches that are neither many nor long.

use crate::columns::{Columns, Row};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use std::sync::Arc;

/// A table in batches, of which small ones are put together.
pub struct Batches<R: Row> {
    columns: Arc<Columns<R>>,
    batches: Vec<RecordBatch>,
    small: Vec<RecordBatch>,
    /// Rows of the small ones.
    rows: usize,
}

impl<R: Row> Batches<R> {
    /// Rows of a batch that stays as it is: to put it together with others is to copy it into fresh memory.
    const LARGE: usize = 512;

    pub fn new(columns: &Arc<Columns<R>>) -> Self {
        Batches { columns: columns.clone(), batches: Vec::new(), small: Vec::new(), rows: 0 }
    }

    pub fn push(&mut self, batch: RecordBatch) {
        let rows = batch.num_rows();
        if rows >= Self::LARGE {
            self.put_together();
            self.batches.push(batch);
        } else if rows > 0 {
            self.rows += rows;
            self.small.push(batch);
            if self.rows >= Self::LARGE {
                self.put_together();
            }
        }
    }

    pub fn put_together(&mut self) {
        self.rows = 0;
        match self.small.len() {
            0 => {}
            1 => self.batches.append(&mut self.small),
            _ => {
                let whole = concat_batches(&self.columns.schema(), &self.small).expect("batches of one schema");
                self.batches.push(whole);
                self.small.clear();
            }
        }
    }

    /// The table; its batches are gone then.
    pub fn take(&mut self) -> (SchemaRef, Vec<RecordBatch>) {
        (self.columns.schema(), std::mem::take(&mut self.batches))
    }
}
