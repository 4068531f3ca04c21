//! A CSV with a row a sample.

use super::layout::Layout;
use super::rows::{Block, Blocks, read_bits, split_first, wrong_line};
use crate::capture::{Chunk, Sampled};
use crate::error::Result;
use crate::read::text::Text;

pub struct Rows {
    text: Text,
    layout: Layout,
    /// Cells before those of the channels: a time, which was looked at before.
    skip_first: bool,
    unit_size: usize,
    bits: Vec<usize>,
    samples: u64,
}

impl Rows {
    /// Checks every row.
    pub fn open(text: Text, layout: Layout) -> Result<Self> {
        let mut rows = Rows {
            unit_size: layout.names.len().div_ceil(8).next_power_of_two(),
            bits: (0..layout.names.len()).collect(),
            text,
            skip_first: layout.time.is_some(),
            layout,
            samples: 0,
        };
        let mut samples = 0;
        let mut units = Vec::new();
        for block in rows.blocks()? {
            rows.read(&block?, &mut units)?;
            samples += (units.len() / rows.unit_size) as u64;
        }
        rows.samples = samples;
        Ok(rows)
    }

    fn blocks(&self) -> Result<Blocks<'_>> {
        Blocks::new(&self.text, self.layout.body, self.layout.first_line)
    }

    fn read(&self, block: &Block, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let Layout { separator, columns, .. } = self.layout;
        for (line, row) in block.rows() {
            let start = out.len();
            out.resize(start + self.unit_size, 0);
            let (row, columns) =
                if self.skip_first { (split_first(row, separator).1, columns - 1) } else { (row, columns) };
            read_bits(row, separator, self.bits.len(), columns, &mut out[start..])
                .map_err(|what| wrong_line(&self.text, line, what))?;
        }
        Ok(())
    }
}

impl Sampled for Rows {
    fn unit_size(&self) -> usize {
        self.unit_size
    }

    fn bits(&self) -> &[usize] {
        &self.bits
    }

    fn rate_hz(&self) -> Option<f64> {
        self.layout.rate_hz
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.samples * self.unit_size as u64)
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let blocks = match self.blocks() {
            Ok(blocks) => blocks,
            Err(e) => return Box::new(std::iter::once(Err(e))),
        };
        let mut offset = 0;
        Box::new(blocks.map(move |block| {
            let block = block?;
            let chunk_offset = offset;
            offset += (block.rows().count() * self.unit_size) as u64;
            Ok(Chunk::load(chunk_offset, move |out| self.read(&block, out)))
        }))
    }
}
