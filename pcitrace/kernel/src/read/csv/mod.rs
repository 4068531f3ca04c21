//! CSV, plain or gzipped: a row a sample (sigrok), or a time and values where something changed (Saleae, DSView, and
//! sigrok with its time column).

mod layout;
mod rows;
mod sampled;
mod timed;

use super::text::{Text, fill};
use crate::capture::{Capture, Channel, Data};
use crate::error::Result;

/// The comments and the row of names are in here.
const HEAD_BYTES: usize = 1 << 20;

pub fn open(text: Text) -> Result<Capture> {
    let mut head = vec![0; HEAD_BYTES];
    let read = fill(&mut text.read_from(0)?, &mut head).map_err(|e| text.unreadable(e))?;
    let layout = layout::find(&head[..read], read < HEAD_BYTES)
        .map_err(|(line, what)| rows::wrong_line(&text, line, what))?;
    let path = text.path().to_owned();
    let channels = layout
        .names
        .iter()
        .map(|name| Channel {
            name: name.clone(),
            width: 1,
        })
        .collect();
    let data = match layout.time {
        None => Data::Sampled(Box::new(sampled::Rows::open(text, layout)?)),
        Some(unit) => Data::Changes(Box::new(timed::Rows::open(text, layout, unit)?)),
    };
    Ok(Capture {
        path,
        format: "csv",
        channels,
        data,
    })
}
