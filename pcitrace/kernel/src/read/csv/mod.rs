//! CSV, plain or gzipped: a row a sample (sigrok), or a time and values where something changed (Saleae, DSView, and
//! sigrok with its time column).

mod counted;
mod layout;
mod rows;
mod sampled;
mod timed;

use super::text::{Text, append};
use crate::capture::{Capture, Channel, Data};
use crate::error::Result;
use counted::Counted;
use layout::Time;
use timed::Clock;

/// The comments and the row of names are in here.
const HEAD_BYTES: usize = 1 << 20;

pub fn open(text: Text) -> Result<Capture> {
    let mut head = Vec::new();
    let read = append(&mut text.read_from(0)?, &mut head, HEAD_BYTES).map_err(|e| text.unreadable(e))?;
    let layout = layout::find(&head, read < HEAD_BYTES).map_err(|(line, what)| rows::wrong_line(&text, line, what))?;
    let path = text.path().to_owned();
    let channels = layout.names.iter().map(|name| Channel { name: name.clone(), width: 1 }).collect();
    let mut notes = layout.notes.clone();
    let data = match layout.time {
        None => Data::Sampled(Box::new(sampled::Rows::open(text, layout)?)),
        Some(Time::Parts(parts)) => Data::Changes(Box::new(timed::Rows::open(text, layout, Clock::Parts(parts))?)),
        Some(Time::Counted { parts, rate_hz }) => match counted::look(&text, &layout, parts, rate_hz)? {
            Counted::EachRow(note) => {
                notes.extend(note);
                Data::Sampled(Box::new(sampled::Rows::open(text, layout)?))
            }
            Counted::Changed(clock) => Data::Changes(Box::new(timed::Rows::open(text, layout, clock)?)),
        },
    };
    Ok(Capture { path, format: "csv", channels, data, notes, captures: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Signal;
    use crate::read::testing::TempFile;

    fn open_text(text: &str) -> Result<(TempFile, Capture)> {
        let file = TempFile::new("a.csv", text.as_bytes());
        let capture = open(Text::new(file.path(), false))?;
        Ok((file, capture))
    }

    fn samples(text: &str) -> (Option<f64>, Vec<u8>) {
        let (_file, capture) = open_text(text).unwrap();
        let Data::Sampled(sampled) = &capture.data else {
            panic!("{text:?} has no times");
        };
        let mut all = Vec::new();
        for chunk in sampled.chunks() {
            let chunk = chunk.unwrap();
            assert_eq!(chunk.offset, all.len() as u64);
            all.extend(&*chunk.bytes(&mut Vec::new()).unwrap());
        }
        assert_eq!(sampled.total_bytes(), Some(all.len() as u64));
        (sampled.rate_hz(), all)
    }

    fn refusal(text: &str) -> String {
        let error = open_text(text).map(|_| ()).unwrap_err().to_string();
        error.split_once(", ").unwrap().1.into()
    }

    #[test]
    fn a_row_a_sample() {
        let head = "; Channels (3/8): CLK, FRAME#, IRDY#\n; Samplerate: 33.333333 MHz\nlogic,logic,logic\n";
        let expected = (Some(33_333_333.0), vec![1, 2, 7, 0]);
        assert_eq!(samples(&format!("{head}1,0,0\n0,1,0\n1,1,1\n0,0,0\n")), expected);
        // As another program would save it again.
        assert_eq!(samples(&format!("{head}1, 0, 0\r\n0,1,0 \r\n\r\n1,1,1\r\n0,0,0")), expected);
        // Nothing but the samples.
        assert_eq!(samples("1\n0\n"), (None, vec![1, 0]));
    }

    #[test]
    fn more_rows_than_a_block() {
        let mut text = (0..17).map(|n| format!("D{n}")).collect::<Vec<_>>().join(",") + "\n";
        let mut expected = Vec::new();
        for n in 0..130_000u32 {
            let unit = n.wrapping_mul(2_654_435_761) >> 15;
            let row: Vec<_> = (0..17).map(|bit| (unit >> bit & 1).to_string()).collect();
            text += &(row.join(",") + "\n");
            expected.extend(unit.to_le_bytes());
        }
        assert!(text.len() > 4 << 20);
        assert_eq!(samples(&text).1, expected);
    }

    #[test]
    fn a_time_and_what_holds_from_then_on() {
        let text = "Time[s], A, B\n-0.000000010, 1, 0\n0.000000000, 1, 1\n0.000000005, 0, 1\n0.000000005, 1, 1\n";
        let (_file, capture) = open_text(text).unwrap();
        let Data::Changes(changes) = &capture.data else {
            panic!("there are times");
        };
        assert_eq!((changes.tick(), changes.end()), ((1, 1_000_000_000_000), 15_000));
        let signal =
            |times: &[u64], values: &[u64]| Signal { times: times.into(), values: values.into(), ..Signal::default() };
        let expected = [signal(&[0, 10_000], &[0, 1]), signal(&[0, 15_000, 15_000], &[1, 0, 1])];
        assert_eq!(changes.signals(&crate::capture::Limb::lowest(&[1, 0])).unwrap(), expected);
    }

    #[test]
    fn odd_rows_are_refused_by_line() {
        let head = "; Samplerate: 1 MHz\nA,B\n0,1\n";
        let row = |row: &str| refusal(&format!("{head}{row}\n"));
        assert_eq!(row("0"), "line 4: 1 values where the first row has 2; export the file again");
        assert_eq!(row("0,1,1"), "line 4: 3 values where the first row has 2; export the file again");
        assert_eq!(row("0,2"), "line 4: value 2 is `2`, neither 0 nor 1; export logic channels only");
        assert_eq!(row("0;1"), "line 4: value 1 is `0;1`, neither 0 nor 1; export logic channels only");
        let timed = |row: &str| refusal(&format!("Time [s],A\n0.5,1\n{row}\n"));
        assert_eq!(timed("0.4,1"), "line 3: time runs backwards from 0.5 s to 0.4 s; export the file again");
        assert_eq!(timed("0.6"), "line 3: value 1 is ``, neither 0 nor 1; export logic channels only");
        assert_eq!(timed("0.6,1,1"), "line 3: 2 values where the first row has 1; export the file again");
        assert_eq!(timed("noon,1"), "line 3: `noon` is not a time; export times in seconds");
    }
}
