//! What the head of a CSV file says: channels, rate, and whether a column holds times.
//!
//! sigrok writes comments (`; Channels (2/8): CLK, FRAME#`, `; Samplerate: 100 MHz`), then a row of types, names or
//! neither, then a row a sample. Saleae and DSView write a row of names, then times and values where something changed.

use super::rows::cells;
use super::timed;
use crate::read::ini;
use crate::read::names::number_repeated;
use std::collections::BTreeSet;

#[derive(Debug, PartialEq)]
pub struct Layout {
    pub names: Vec<String>,
    pub rate_hz: Option<f64>,
    pub separator: u8,
    /// The first column, if it is a time.
    pub time: Option<Time>,
    /// Cells in a row; more than channels and time where sigrok adds its trigger column.
    pub columns: usize,
    /// Where the rows begin: byte and line number (from 1).
    pub body: u64,
    pub first_line: u64,
    /// As of [`Capture`](crate::capture::Capture).
    pub notes: Vec<String>,
}

/// What the numbers of the time column mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Time {
    /// Times in parts of a second, so many to one.
    Parts(u64),
    /// Numbers that sigrok counts up by its truncated period, in parts of a second, so many to one: the rate that it
    /// states beside them says when a sample was.
    Counted { parts: u64, rate_hz: f64 },
}

/// `head` is the begin of the text, all of it if it is short. The error is a line number and what is wrong there.
pub fn find(head: &[u8], is_all: bool) -> Result<Layout, (u64, String)> {
    let mut names: Option<Vec<String>> = None;
    let mut rate_hz = None;
    let mut body = 0;
    let mut number = 0;
    let mut label_row: Option<String> = None;
    let mark = comment_mark(head);
    for line in head.split_inclusive(|&c| c == b'\n') {
        number += 1;
        let complete = is_all || line.ends_with(b"\n");
        let text = String::from_utf8_lossy(line).trim().to_owned();
        if !complete {
            return Err((number, "the first lines are too long for a CSV of samples".into()));
        }
        let wrong = |what: String| Err((number, what));
        // Spreadsheets are told their separator by such a line; ours is told by the rows.
        if text.is_empty() || number == 1 && text.len() == 5 && text.starts_with("sep=") {
            body += line.len() as u64;
            continue;
        }
        if let Some(comment) = text.strip_prefix(&mark) {
            body += line.len() as u64;
            if let Some((key, value)) = comment.split_once(':') {
                let key = key.trim().to_ascii_lowercase();
                if key.starts_with("channels (") {
                    let stated = value.split(',').map(|name| name.trim().into()).collect();
                    if names.replace(stated).is_some_and(|before| Some(before) != names) {
                        return wrong("the channels are stated twice, and not the same; export the file again".into());
                    }
                } else if key == "samplerate" || key == "sample rate" {
                    let rate = ini::parse_rate(value).filter(|&hz| hz > 0.0);
                    if rate.is_none() {
                        return wrong(format!("`{}` is not a positive rate", value.trim()));
                    }
                    if rate_hz.is_some_and(|before| Some(before) != rate) {
                        return wrong("the rate is stated twice, and not the same; export the file again".into());
                    }
                    rate_hz = rate;
                }
            }
            continue;
        }
        let separator = separator(line);
        let row: Vec<String> = cells(&text, separator);
        let is_row = row.iter().skip(1).chain(row.first().filter(|_| row.len() == 1)).all(|cell| is_number(cell));
        let is_time = |cell: &String| is_number(&cell.replace(',', ".")) || timed::is_written_time(cell.as_bytes());
        if label_row.is_none() && !(is_row && row.first().is_some_and(is_time)) {
            body += line.len() as u64;
            label_row = Some(text);
            continue;
        }
        let label_row = label_row.map(|labels| cells(&labels, separator));
        // The first cell may be a time in a form that the row's reader refuses by name.
        if !row.iter().skip(1).chain(row.first().filter(|_| row.len() == 1)).all(|cell| is_number(cell)) {
            return wrong(format!("`{}` is not a row of samples; is this a capture?", shown(&text)));
        }
        let behind = head[body as usize + line.len()..].split(|&c| c == b'\n').find(|row| !row.trim_ascii().is_empty());
        let next = behind.map(|row| cells(&String::from_utf8_lossy(row), separator));
        return finish(names, rate_hz, label_row, &row, next.as_deref(), separator)
            .map(|layout| Layout { body, first_line: number, ..layout })
            .map_err(|what| (number, what));
    }
    Err((number, "there is no row of samples; export the file again".into()))
}

/// What a comment begins with: `;`, or what sigrok was told to write (its option `comment`), as its first line shows.
fn comment_mark(head: &[u8]) -> String {
    let first = String::from_utf8_lossy(head.split(|&c| c == b'\n').next().unwrap_or_default());
    let mark = first
        .split_once("CSV")
        .filter(|(_, rest)| rest.contains("generated by libsigrok"))
        .map(|(mark, _)| mark.trim());
    mark.filter(|mark| !mark.is_empty()).unwrap_or(";").into()
}

fn finish(
    names: Option<Vec<String>>,
    rate_hz: Option<f64>,
    labels: Option<Vec<String>>,
    row: &[String],
    next: Option<&[String]>,
    separator: u8,
) -> Result<Layout, String> {
    let columns = row.len();
    if let Some(labels) = labels.as_ref().filter(|labels| labels.len() != columns) {
        return Err(format!("{columns} cells where the row of names has {}", labels.len()));
    }
    let label = labels.as_ref().map(|labels| labels[0].to_ascii_lowercase());
    let written = timed::is_written_time(row[0].as_bytes());
    let time = match label {
        // The cells say their unit themselves.
        Some(label) if written && label.starts_with("time") => Some(Time::Parts(1)),
        Some(label) => time_unit(&label, rate_hz)?,
        // Without labels sigrok's comment says how many columns are channels. One more is a time, which counts up and so is 0
        // or 1 in one row at most, or at the end what tells of the trigger.
        None if names.as_ref().is_some_and(|n| n.len() + 1 == columns)
            && [Some(row), next].iter().flatten().all(|row| matches!(row[0].as_str(), "0" | "1")) =>
        {
            None
        }
        None if names.as_ref().is_some_and(|n| n.len() < columns) => time_unit("time", rate_hz)?,
        None => None,
    };
    if time.is_none() && !matches!(row[0].as_str(), "0" | "1") {
        let name = labels.as_ref().map_or(String::new(), |labels| format!(" `{}`", shown(&labels[0])));
        return Err(format!(
            "the first column{name} holds `{}`, no sample; if it is a time, name it by its unit, e.g. `Time [s]`",
            shown(&row[0])
        ));
    }
    let first = usize::from(time.is_some());
    if let (Some(names), Some(labels)) = (&names, &labels) {
        // Labels may be types; where they are the names, who moves columns about moves them, and the comment stays.
        let labels = || labels[first..].iter().take(names.len());
        let are_names = labels().collect::<BTreeSet<_>>() == names.iter().collect();
        let moved = labels().zip(names).find(|(label, name)| are_names && label != name);
        if let Some((label, name)) = moved {
            return Err(format!("the column `{label}` stands where the comment has `{name}`; correct the comment"));
        }
    }
    let without_rate = match (&labels, time) {
        (Some(labels), Some(Time::Parts(_))) if labels[1..].iter().all(|label| label == "logic") => Some(format!(
            "it has no comments, so its rate is not known; sigrok drops what is behind the point of its period in {}: the times \
             may be too short by as much. Export it with them (`header=true`)",
            labels[0]
        )),
        _ => None,
    };
    let names = match (names, labels) {
        (Some(names), _) => names,
        (None, Some(labels)) => labels[first..].to_vec(),
        (None, None) => (1..=columns).map(|n| format!("column_{n}")).collect(),
    };
    if names.is_empty() || first + names.len() > columns {
        return Err(format!("{columns} cells where {} channels are named", names.len()));
    }
    let mut names = names;
    let mut notes = number_repeated(&mut names);
    notes.extend(without_rate);
    Ok(Layout { names, rate_hz, separator, time, columns, body: 0, first_line: 0, notes })
}

/// The unit that the first column's label gives, `None` if it labels a channel.
fn time_unit(label: &str, rate_hz: Option<f64>) -> Result<Option<Time>, String> {
    // Beside a rate, sigrok's comment, times are sigrok's count.
    let per = |parts| Ok(Some(rate_hz.map_or(Time::Parts(parts), |rate_hz| Time::Counted { parts, rate_hz })));
    let unit = label.strip_prefix("time").map(|rest| rest.trim_matches([' ', '_', '[', ']', '(', ')']));
    match (label, unit) {
        ("seconds", _) | (_, Some("s" | "sec" | "seconds")) => per(1),
        ("milliseconds", _) | (_, Some("ms" | "milliseconds")) => per(1_000),
        ("microseconds", _) | (_, Some("us" | "µs" | "μs" | "microseconds")) => per(1_000_000),
        ("nanoseconds", _) | (_, Some("ns" | "nanoseconds")) => per(1_000_000_000),
        ("picoseconds", _) | (_, Some("ps" | "picoseconds")) => per(1_000_000_000_000),
        ("sample" | "samples", _) => Err("the first column holds sample numbers; export times in seconds".into()),
        // sigrok leaves the unit to the rate.
        (_, Some("")) => match rate_hz {
            Some(hz) if hz > 1e9 => per(1_000_000_000_000),
            Some(hz) if hz > 1e6 => per(1_000_000_000),
            Some(hz) if hz > 1e3 => per(1_000_000),
            Some(hz) if hz > 1.0 => per(1_000),
            Some(_) => per(1),
            None => Err("the time column has no unit; name it e.g. `Time [s]`".into()),
        },
        _ => Ok(None),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Of a row of numbers; beside another one a comma is a decimal point.
fn separator(line: &[u8]) -> u8 {
    *b";\t,".iter().find(|s| line.contains(s)).unwrap_or(&b',')
}

fn is_number(cell: &str) -> bool {
    cell.parse::<f64>().is_ok_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(layout: &Layout) -> Vec<&str> {
        layout.names.iter().map(String::as_str).collect()
    }

    #[test]
    fn sigrok_types_names_or_nothing() {
        let head = "; CSV generated by libsigrok 0.5.2\n; Channels (2/8): CLK, FRAME#\n; Samplerate: 100 MHz\n";
        for labels in ["logic,logic\n", "CLK,FRAME#\n", ""] {
            let layout = find(format!("{head}{labels}0,1\n").as_bytes(), true).unwrap();
            assert_eq!(names(&layout), ["CLK", "FRAME#"]);
            assert_eq!((layout.rate_hz, layout.time, layout.columns), (Some(1e8), None, 2));
            assert_eq!(layout.body as usize, head.len() + labels.len());
        }
    }

    #[test]
    fn sigrok_time_and_trigger_columns() {
        let head = "; Channels (2/2): A, B\n; Samplerate: 33.333333 MHz\n";
        for labels in ["Time,A,B,Trigger", "nanoseconds,logic,logic,Trigger"] {
            let layout = find(format!("{head}{labels}\n30,1,0,0\n").as_bytes(), true).unwrap();
            assert_eq!(names(&layout), ["A", "B"]);
            assert_eq!(layout.time, Some(Time::Counted { parts: 1_000_000_000, rate_hz: 33_333_333.0 }));
            assert_eq!(layout.columns, 4);
        }
    }

    #[test]
    fn sigrok_without_labels_and_with_other_comments() {
        let head = "# CSV generated by libsigrok 0.5.2\n# Channels (2/2): A, B\n# Samplerate: 1 MHz\n";
        let layout = |rows: &str| find(format!("{head}{rows}").as_bytes(), true).unwrap();
        // A trigger, a time from 1 us on, both.
        for (rows, has_time) in [("0,1,0\n1,1,0\n", false), ("1,0,1\n2,1,1\n", true), ("1,0,1,0\n2,1,1,0\n", true)] {
            let layout = layout(rows);
            assert_eq!((names(&layout), layout.time.is_some()), (vec!["A", "B"], has_time), "{rows}");
            assert_eq!(layout.rate_hz, Some(1e6));
        }
        let bare = find(b"nanoseconds,logic,logic\n41,0,1\n82,0,1\n", true).unwrap();
        assert!(bare.notes.iter().any(|note| note.contains("its rate is not known")), "{:?}", bare.notes);
    }

    #[test]
    fn saleae_forms() {
        let heads = ["Time [s],Channel 0,Channel 1\n0.0,1,0\n", "Time[s], Channel 0, Channel 1\n-0.1, 1, 0\n"];
        for head in heads.into_iter().chain(["sep=;\r\nTime (seconds);Channel 0;Channel 1\r\n0,0;1;0\r\n"]) {
            let layout = find(head.as_bytes(), true).unwrap();
            assert_eq!(names(&layout), ["Channel 0", "Channel 1"]);
            assert_eq!(layout.time, Some(Time::Parts(1)));
        }
    }

    #[test]
    fn what_cannot_be() {
        let wrong = |text: &str| find(text.as_bytes(), true).unwrap_err();
        assert_eq!(wrong("A,B\n").1, "there is no row of samples; export the file again");
        assert!(wrong("Time,A\n0,1\n").1.contains("has no unit"));
        assert!(wrong("samples,A\n1,1\n").1.contains("holds sample numbers"));
        assert!(wrong("A,B\n0,1,1\n").1.starts_with("3 cells"));
        assert!(wrong("Timestamp,A\n0.5,1\n").1.starts_with("the first column `Timestamp` holds `0.5`, no sample"));
        assert!(wrong("0.5,1\n").1.starts_with("the first column holds `0.5`, no sample; if it is a time"));
        let stated = "; Channels (2/2): A, B\n; Samplerate: 1 MHz\n";
        assert_eq!(
            wrong(&format!("{stated}B,A\n0,1\n")),
            (4, "the column `B` stands where the comment has `A`; correct the comment".into())
        );
        assert!(wrong(&format!("{stated}; Samplerate: 2 MHz\nA,B\n0,1\n")).1.contains("rate is stated twice"));
        assert!(wrong(&format!("{stated}; Channels (2/2): B, A\n0,1\n")).1.contains("channels are stated twice"));
        assert!(find(format!("{}logic,logic\n0,1\n", stated.replace('B', "logic")).as_bytes(), true).is_ok());
        assert!(find(format!("{stated}{stated}A,B\n0,1\n").as_bytes(), true).is_ok());
        assert!(wrong("; Samplerate: 0 Hz\nA\n1\n").1.contains("not a positive rate"));
        assert_eq!(wrong("hello\nworld\n"), (2, "`world` is not a row of samples; is this a capture?".into()));
    }
}
